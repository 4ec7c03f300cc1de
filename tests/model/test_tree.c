/* Tree: totals, names and order are those of transformers. */
#include "check.h"
#include "model/model.h"

static struct tree build(const char *preset)
{
    struct model_config config;
    struct tree tree;
    CHECK_OK(config_preset(preset, &config));
    CHECK_OK(tree_build(&config, &tree));
    return tree;
}

TEST(parameters_and_tensors_are_as_many_as_in_the_published_models)
{
    static const struct {
        const char *preset;
        uint64_t total;
        int tensors;
    } cases[] = {
        { "qwen2.5-1.5b", 1543714304, 338 }, { "qwen2.5-0.5b", 494032768, 290 },
        { "qwen3-0.6b", 596049920, 310 },    { "smollm2-135m", 134515008, 272 },
        { "llama-3.2-1b", 1235814400, 146 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tree tree = build(cases[i].preset);
        CHECK_INT(tree.total, cases[i].total);
        CHECK_INT(tree.params, cases[i].tensors);
        tree_release(&tree);
    }
    struct tree tiny = build("tiny");
    CHECK(tiny.total < 400000);
    tree_release(&tiny);
}

static void check_order(const struct tree *tree, const char *const *names, int from)
{
    for (int i = 0; names[i] != NULL; i++)
        CHECK_STR(tree->module[from + i].name, names[i]);
}

TEST(modules_come_in_the_order_of_registration)
{
    static const char *const qwen2[] = {
        "",
        "model",
        "model.embed_tokens",
        "model.layers",
        "model.layers.0",
        "model.layers.0.self_attn",
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.self_attn.k_proj",
        "model.layers.0.self_attn.v_proj",
        "model.layers.0.self_attn.o_proj",
        "model.layers.0.mlp",
        "model.layers.0.mlp.gate_proj",
        "model.layers.0.mlp.up_proj",
        "model.layers.0.mlp.down_proj",
        "model.layers.0.input_layernorm",
        "model.layers.0.post_attention_layernorm",
        "model.layers.1",
        NULL,
    };
    static const char *const qwen3[] = {
        "model.layers.0.self_attn.o_proj",
        "model.layers.0.self_attn.q_norm",
        "model.layers.0.self_attn.k_norm",
        "model.layers.0.mlp",
        NULL,
    };
    struct tree tree = build("qwen2.5-0.5b");
    check_order(&tree, qwen2, 0);
    CHECK_STR(tree.module[tree.modules - 2].name, "model.norm");
    CHECK_STR(tree.module[tree.modules - 1].name, "lm_head");
    tree_release(&tree);
    tree = build("qwen3-0.6b");
    check_order(&tree, qwen3, 9);
    tree_release(&tree);
}

TEST(parameters_have_the_shapes_of_the_files)
{
    static const struct {
        const char *name;
        size_t rows, cols;
        enum param_init init;
    } cases[] = {
        { "model.embed_tokens.weight", 151936, 1024, INIT_NORMAL },
        { "model.layers.27.self_attn.q_proj.weight", 2048, 1024, INIT_NORMAL },
        { "model.layers.27.self_attn.k_proj.weight", 1024, 1024, INIT_NORMAL },
        { "model.layers.27.self_attn.o_proj.weight", 1024, 2048, INIT_NORMAL },
        { "model.layers.27.self_attn.q_norm.weight", 128, 0, INIT_ONES },
        { "model.layers.27.mlp.gate_proj.weight", 3072, 1024, INIT_NORMAL },
        { "model.layers.27.mlp.down_proj.weight", 1024, 3072, INIT_NORMAL },
        { "model.norm.weight", 1024, 0, INIT_ONES },
    };
    struct tree tree = build("qwen3-0.6b");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int p = tree_find_param(&tree, cases[i].name);
        CHECK(p >= 0);
        CHECK_INT(tree.param[p].rows, cases[i].rows);
        CHECK_INT(tree.param[p].cols, cases[i].cols);
        CHECK_INT(tree.param[p].init, cases[i].init);
    }
    CHECK_INT(tree_find_param(&tree, "model.layers.0.self_attn.q_proj.bias"), -1);
    CHECK_INT(tree_find_param(&tree, "lm_head.weight"), -1);
    tree_release(&tree);
    tree = build("qwen2.5-0.5b");
    int bias = tree_find_param(&tree, "model.layers.0.self_attn.k_proj.bias");
    CHECK(bias >= 0);
    CHECK_INT(tree.param[bias].rows, 128);
    CHECK_INT(tree.param[bias].init, INIT_ZEROS);
    CHECK_INT(tree_find_param(&tree, "model.layers.0.self_attn.o_proj.bias"), -1);
    tree_release(&tree);
}

/* Each module's subtree holds what its name says, and ownership covers each parameter once. */
static void check_structure(const struct tree *tree)
{
    int owned = 0;
    for (int m = 0; m < tree->modules; m++) {
        const struct module *module = &tree->module[m];
        size_t len = strlen(module->name);
        CHECK_INT(module->first_param, owned);
        owned += module->params;
        for (int n = 0; n < tree->modules; n++) {
            const char *name = tree->module[n].name;
            bool below =
                n == m || len == 0 || (strncmp(name, module->name, len) == 0 && name[len] == '.');
            CHECK_INT(n >= m && n < module->end, below);
        }
        CHECK_INT(module->list, strcmp(module->name, "model.layers") == 0);
        CHECK_INT(tree_find_module(tree, module->name), m);
    }
    for (int p = 0; p < tree->params; p++) {
        const struct param *param = &tree->param[p];
        CHECK(strncmp(param->name, tree->module[param->module].name,
                      strlen(tree->module[param->module].name)) == 0);
        CHECK_INT(tree_find_param(tree, param->name), p);
    }
}

TEST(the_structure_is_whole_tied_or_not)
{
    struct model_config config;
    CHECK_OK(config_preset("tiny", &config));
    for (int tied = 0; tied < 2; tied++) {
        struct tree tree;
        config.tied = tied;
        CHECK_OK(tree_build(&config, &tree));
        check_structure(&tree);
        const struct module *head = &tree.module[tree.modules - 1];
        CHECK_INT(head->params, 1);
        CHECK_INT(tree.own[head->first_param], tied ? 0 : tree.params - 1);
        if (tied)
            CHECK_INT(tree.param[0].module, tree_find_module(&tree, "model.embed_tokens"));
        tree_release(&tree);
    }
}

TEST_MAIN
