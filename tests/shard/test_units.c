/* Units: PyTorch's size_based_auto_wrap_policy, and one unit a layer. */
#include "check.h"
#include "shard/shard.h"

static struct tree preset(const char *name)
{
    struct model_config config;
    struct tree tree;
    CHECK_OK(config_preset(name, &config));
    CHECK_OK(tree_build(&config, &tree));
    return tree;
}

static struct unit_list units_of(const struct tree *tree, enum wrap_policy policy, uint64_t least)
{
    struct unit_list units;
    CHECK_OK(units_build(tree, policy, least, &units));
    return units;
}

static void check_each_once(const struct tree *tree, const struct unit_list *units)
{
    uint64_t total = 0;
    int params = 0;
    for (int u = 0; u < units->units; u++) {
        total += units->unit[u].count;
        params += units->unit[u].params;
        for (int i = 0; i < units->unit[u].params; i++)
            CHECK_INT(units->unit_of[units->unit[u].param[i]], u);
    }
    CHECK_INT(total, tree->total);
    CHECK_INT(params, tree->params);
}

/* A root of the tests' own: modules in pre-order with their own parameters' sizes. */
struct shape {
    const char *name;
    int parent, own;
    bool list;
};
static struct tree hand_made(const struct shape *shapes, int count)
{
    struct tree t = { .modules = count };
    CHECK_OK(MEM_NEW(&t.module, (size_t)count));
    CHECK_OK(MEM_NEW(&t.param, (size_t)count));
    CHECK_OK(MEM_NEW(&t.own, (size_t)count));
    for (int i = 0; i < count; i++) {
        struct module *m = &t.module[i];
        snprintf(m->name, sizeof m->name, "%s", shapes[i].name);
        m->parent = shapes[i].parent;
        m->list = shapes[i].list;
        m->first_param = t.params;
        for (int a = i; a >= 0; a = shapes[a].parent)
            t.module[a].end = i + 1;
        if (shapes[i].own == 0)
            continue;
        t.param[t.params].count = (size_t)shapes[i].own;
        t.param[t.params].module = i;
        t.own[t.params] = t.params;
        t.params++;
        m->params = 1;
        t.total += (uint64_t)shapes[i].own;
    }
    return t;
}

static uint64_t count_of(const struct tree *tree, const struct unit_list *units, const char *name)
{
    for (int u = 0; u < units->units; u++)
        if (strcmp(tree->module[units->unit[u].module].name, name) == 0)
            return units->unit[u].count;
    return 0;
}

TEST(a_large_child_is_a_unit_and_small_ones_stay_with_the_root)
{
    const struct shape s[] = {
        { "", -1, 0, 0 }, { "A", 0, 150, 0 }, { "B", 0, 60, 0 }, { "C", 0, 60, 0 }
    };
    struct tree t = hand_made(s, 4);
    struct unit_list u = units_of(&t, WRAP_SIZE, 100);
    CHECK_INT(u.units, 2);
    CHECK_INT(count_of(&t, &u, "A"), 150);
    CHECK_INT(count_of(&t, &u, ""), 120);
    units_release(&u);
    tree_release(&t);
}

TEST(a_module_list_is_never_a_unit)
{
    const struct shape s[] = {
        { "", -1, 0, 0 }, { "L", 0, 0, 1 }, { "L.X", 1, 60, 0 }, { "L.Y", 1, 60, 0 }
    };
    struct tree t = hand_made(s, 4);
    struct unit_list u = units_of(&t, WRAP_SIZE, 100);
    CHECK_INT(u.units, 1);
    CHECK_INT(count_of(&t, &u, ""), 120);
    units_release(&u);
    tree_release(&t);
}

TEST(a_parent_is_judged_by_what_its_children_left)
{
    const struct shape s[] = { { "", -1, 0, 0 }, { "M", 0, 50, 0 }, { "M.N", 1, 120, 0 } };
    struct tree t = hand_made(s, 3);
    struct unit_list u = units_of(&t, WRAP_SIZE, 100);
    CHECK_INT(u.units, 2);
    CHECK_INT(count_of(&t, &u, "M.N"), 120);
    CHECK_INT(count_of(&t, &u, ""), 50);
    units_release(&u);
    tree_release(&t);
}

TEST(the_reference_model_has_the_units_that_pytorch_gives_it)
{
    struct tree t = preset("qwen2.5-1.5b");
    struct unit_list u = units_of(&t, WRAP_SIZE, 10000000);
    int projections = 0;
    for (int i = 0; i < u.units; i++)
        projections += u.unit[i].count == 13762560;
    CHECK_INT(projections, 84);
    CHECK_INT(count_of(&t, &u, "model.embed_tokens"), 233373696);
    CHECK_INT(count_of(&t, &u, "model"), 154285568);
    CHECK_INT(count_of(&t, &u, "lm_head"), 0);
    check_each_once(&t, &u);
    units_release(&u);
    tree_release(&t);
}

TEST(blocks_are_layers_with_embedding_and_head_apart)
{
    struct tree t = preset("qwen2.5-1.5b");
    struct unit_list u = units_of(&t, WRAP_BLOCK, 0);
    CHECK_INT(u.units, 1 + 1 + 28);
    CHECK_INT(count_of(&t, &u, "model.layers.27"), 46797824);
    CHECK_INT(count_of(&t, &u, ""), 1536);
    check_each_once(&t, &u);
    units_release(&u);
    tree_release(&t);
}

TEST(every_threshold_places_every_parameter_once)
{
    static const char *const names[] = { "tiny", "smollm2-135m", "qwen3-0.6b", "llama-3.2-1b" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tree t = preset(names[i]);
        for (uint64_t least = 1; least < 4000000000; least *= 7) {
            struct unit_list u = units_of(&t, WRAP_SIZE, least);
            check_each_once(&t, &u);
            units_release(&u);
        }
        tree_release(&t);
    }
}

TEST(words_of_the_command_line_are_listed_when_unknown)
{
    enum shard_strategy s;
    CHECK_OK(shard_parse_strategy("grad", &s));
    CHECK_INT(s, SHARD_GRAD);
    CHECK_INT(shard_parse_strategy("zero3", &s), RAIA_EINVAL);
    CHECK(strstr(raia_error(), "full, grad, none") != NULL);
}

TEST_MAIN
