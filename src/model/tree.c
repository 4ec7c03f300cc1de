/* tree: a decoder's modules and parameters, in the order in which transformers registers them. */
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIXED_MODULES = 6, LAYER_MODULES = 14, FIXED_PARAMS = 3, LAYER_PARAMS = 14 };

struct builder {
    struct tree tree;
    int owned;
    bool too_long; /* a name did not fit */
};

/* Opens the module PARENT.NAME; its subtree is what is opened before close_module. */
static int open_module(struct builder *b, int parent, const char *name)
{
    int index = b->tree.modules++;
    struct module *module = &b->tree.module[index];
    const char *above = parent < 0 ? "" : b->tree.module[parent].name;
    int len = snprintf(module->name, sizeof module->name, "%s%s%s", above,
                       above[0] != '\0' ? "." : "", name);
    b->too_long |= len >= (int)sizeof module->name;
    module->parent = parent;
    module->first_param = b->owned;
    return index;
}

static void close_module(struct builder *b, int index)
{
    b->tree.module[index].end = b->tree.modules;
}

static void own_param(struct builder *b, int module, int param)
{
    b->tree.own[b->owned++] = param;
    b->tree.module[module].params++;
}

static void add_param(struct builder *b, int module, const char *name, size_t rows, size_t cols,
                      enum param_init init)
{
    int index = b->tree.params++;
    struct param *param = &b->tree.param[index];
    int len = snprintf(param->name, sizeof param->name, "%s.%s", b->tree.module[module].name, name);
    b->too_long |= len >= (int)sizeof param->name;
    param->rows = rows;
    param->cols = cols;
    param->count = cols > 0 ? rows * cols : rows;
    param->module = module;
    param->init = init;
    b->tree.total += param->count;
    own_param(b, module, index);
}

static void add_linear(struct builder *b, int parent, const char *name, size_t rows, size_t cols,
                       bool bias)
{
    int module = open_module(b, parent, name);
    add_param(b, module, "weight", rows, cols, INIT_NORMAL);
    if (bias)
        add_param(b, module, "bias", rows, 0, INIT_ZEROS);
    close_module(b, module);
}

static void add_norm(struct builder *b, int parent, const char *name, size_t size)
{
    int module = open_module(b, parent, name);
    add_param(b, module, "weight", size, 0, INIT_ONES);
    close_module(b, module);
}

static void add_attention(struct builder *b, int parent, const struct model_config *config)
{
    size_t q = config->heads * config->head_dim, kv = config->kv_heads * config->head_dim;
    int attention = open_module(b, parent, "self_attn");
    add_linear(b, attention, "q_proj", q, config->hidden, config->qkv_bias);
    add_linear(b, attention, "k_proj", kv, config->hidden, config->qkv_bias);
    add_linear(b, attention, "v_proj", kv, config->hidden, config->qkv_bias);
    add_linear(b, attention, "o_proj", config->hidden, q, false);
    if (config->qk_norm) {
        add_norm(b, attention, "q_norm", config->head_dim);
        add_norm(b, attention, "k_norm", config->head_dim);
    }
    close_module(b, attention);
}

static void add_mlp(struct builder *b, int parent, const struct model_config *config)
{
    int mlp = open_module(b, parent, "mlp");
    add_linear(b, mlp, "gate_proj", config->intermediate, config->hidden, false);
    add_linear(b, mlp, "up_proj", config->intermediate, config->hidden, false);
    add_linear(b, mlp, "down_proj", config->hidden, config->intermediate, false);
    close_module(b, mlp);
}

static void add_layers(struct builder *b, int parent, const struct model_config *config)
{
    int layers = open_module(b, parent, "layers");
    b->tree.module[layers].list = true;
    for (size_t i = 0; i < config->layers; i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        int layer = open_module(b, layers, name);
        add_attention(b, layer, config);
        add_mlp(b, layer, config);
        add_norm(b, layer, "input_layernorm", config->hidden);
        add_norm(b, layer, "post_attention_layernorm", config->hidden);
        close_module(b, layer);
    }
    close_module(b, layers);
}

static void add_head(struct builder *b, int root, const struct model_config *config)
{
    int head = open_module(b, root, "lm_head");
    if (config->tied)
        own_param(b, head, 0);
    else
        add_param(b, head, "weight", config->vocab, config->hidden, INIT_NORMAL);
    close_module(b, head);
}

raia_status tree_build(const struct model_config *config, struct tree *out)
{
    struct builder b = { 0 };
    size_t params = FIXED_PARAMS + LAYER_PARAMS * config->layers;
    raia_status status = MEM_NEW(&b.tree.param, params);
    if (status == RAIA_OK)
        status = MEM_NEW(&b.tree.own, params);
    if (status == RAIA_OK)
        status = MEM_NEW(&b.tree.module, FIXED_MODULES + LAYER_MODULES * config->layers);
    if (status != RAIA_OK) {
        tree_release(&b.tree);
        return status;
    }
    int root = open_module(&b, -1, "");
    int model = open_module(&b, root, "model");
    /* first of all parameters, so that a tied head is parameter 0 */
    add_linear(&b, model, "embed_tokens", config->vocab, config->hidden, false);
    add_layers(&b, model, config);
    add_norm(&b, model, "norm", config->hidden);
    close_module(&b, model);
    add_head(&b, root, config);
    close_module(&b, root);
    if (b.too_long) {
        tree_release(&b.tree);
        return fail(RAIA_EBUG, "a parameter's name is longer than its place in the tree");
    }
    *out = b.tree;
    return RAIA_OK;
}

void tree_release(struct tree *tree)
{
    free(tree->param);
    free(tree->own);
    free(tree->module);
    *tree = (struct tree){ 0 };
}

int tree_find_param(const struct tree *tree, const char *name)
{
    for (int i = 0; i < tree->params; i++)
        if (strcmp(tree->param[i].name, name) == 0)
            return i;
    return -1;
}

int tree_find_module(const struct tree *tree, const char *name)
{
    for (int i = 0; i < tree->modules; i++)
        if (strcmp(tree->module[i].name, name) == 0)
            return i;
    return -1;
}
