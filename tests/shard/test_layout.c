/* Layout: every element of the model has one owner and one place, at any number of ranks. */
#include "check.h"
#include "shard/shard_priv.h"

static const uint64_t thresholds[] = { 1, 2000, 20000, 100000000 };
static const int sizes[] = { 1, 2, 3, 4, 7, 8, 64 };

struct rig {
    struct tree tree;
    struct unit_list units;
    struct shard_options options;
};

static void open_rig(struct rig *r, const char *name, bool tied, uint64_t least)
{
    struct model_config config;
    CHECK_OK(config_preset(name, &config));
    config.tied = tied;
    *r = (struct rig){ .options = { .precision = PRECISION_F32, .row_block_bytes = 20000 } };
    CHECK_OK(tree_build(&config, &r->tree));
    CHECK_OK(units_build(&r->tree, WRAP_SIZE, least, &r->units));
}

static void close_rig(struct rig *r)
{
    units_release(&r->units);
    tree_release(&r->tree);
}

/* Counts how often each element of each parameter is owned by the ranks of a world. */
static void check_owners(struct rig *r, int size)
{
    struct tree *t = &r->tree;
    for (int p = 0; p < t->params; p++) {
        unsigned char *seen;
        CHECK_OK(MEM_NEW(&seen, t->param[p].count));
        for (int rank = 0; rank < size; rank++) {
            struct layout l;
            const struct world world = { .rank = rank, .size = size };
            CHECK_OK(layout_build(&l, t, &r->units, &world, &r->options));
            for (int i = 0; i < l.pieces; i++)
                for (uint64_t e = 0; l.piece[i].param == p && e < l.piece[i].count; e++)
                    seen[l.piece[i].first + e]++;
            layout_release(&l);
        }
        for (size_t e = 0; e < t->param[p].count; e++)
            CHECK_INT(seen[e], 1);
        free(seen);
    }
}

TEST(each_element_has_one_owner)
{
    for (int tied = 0; tied < 2; tied++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            struct rig r;
            open_rig(&r, "tiny", tied != 0, thresholds[i % 4]);
            check_owners(&r, sizes[i]);
            close_rig(&r);
        }
}

TEST(parameters_do_not_overlap_and_lie_whole)
{
    for (size_t i = 0; i < sizeof thresholds / sizeof thresholds[0]; i++) {
        struct rig r;
        struct layout l;
        const struct world world = { .rank = 2, .size = 3 };
        open_rig(&r, "tiny", false, thresholds[i]);
        CHECK_OK(layout_build(&l, &r.tree, &r.units, &world, &r.options));
        for (int p = 0; p < r.tree.params; p++) {
            uint64_t end = l.param_at[p] + r.tree.param[p].count;
            CHECK(end <= l.elements);
            for (int q = 0; q < r.tree.params; q++)
                CHECK(q == p || l.param_at[q] >= end ||
                      l.param_at[q] + r.tree.param[q].count <= l.param_at[p]);
        }
        layout_release(&l);
        close_rig(&r);
    }
}

TEST(a_rank_owns_a_fair_share)
{
    struct rig r;
    struct model_config config;
    CHECK_OK(config_preset("qwen2.5-1.5b", &config));
    r = (struct rig){ .options = { .precision = PRECISION_BF16 } };
    CHECK_OK(tree_build(&config, &r.tree));
    CHECK_OK(units_build(&r.tree, WRAP_SIZE, 10000000, &r.units));
    for (int rank = 0; rank < 8; rank++) {
        struct layout l;
        const struct world world = { .rank = rank, .size = 8 };
        CHECK_OK(layout_build(&l, &r.tree, &r.units, &world, &r.options));
        double share = (double)l.own_elements * 8 / (double)r.tree.total;
        CHECK(share > 0.999 && share < 1.001);
        layout_release(&l);
    }
    close_rig(&r);
}

TEST(no_more_than_a_layer_of_gradients_is_on_its_way)
{
    struct rig r = { .options = { .precision = PRECISION_BF16 } };
    struct model_config config;
    struct shard_bytes bytes;
    const struct world world = { .size = 8, .local_size = 8, .nodes = 1 };
    CHECK_OK(config_preset("qwen2.5-1.5b", &config));
    CHECK_OK(tree_build(&config, &r.tree));
    CHECK_OK(units_build(&r.tree, WRAP_SIZE, 10000000, &r.units));
    CHECK_OK(shard_measure(&r.tree, &r.units, &r.options, &world, &bytes));
    CHECK(bytes.transient < 48u << 20);
    double steady = (double)(bytes.weights + bytes.gradients + bytes.state);
    CHECK(steady > 1.54e9 && steady < 1.55e9); /* 8 bytes a parameter over 8 ranks */
    close_rig(&r);
}

TEST_MAIN
