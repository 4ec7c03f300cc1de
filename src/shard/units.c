/* Which modules become units. */
#include "shard/shard.h"

#include <stdlib.h>
#include <string.h>

struct word {
    const char *text;
    int value;
};

static raia_status parse_word(const struct word *words, const char *what, const char *text,
                              int *out)
{
    char list[128] = "";
    for (; words->text != NULL; words++) {
        if (strcmp(words->text, text) == 0) {
            *out = words->value;
            return RAIA_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", list[0] ? ", " : "",
                 words->text);
    }
    return fail(RAIA_EINVAL, "%s \"%s\": one of %s", what, text, list);
}

raia_status shard_parse_strategy(const char *text, enum shard_strategy *out)
{
    static const struct word words[] = {
        { "full", SHARD_FULL }, { "grad", SHARD_GRAD }, { "none", SHARD_NONE }, { NULL, 0 }
    };
    int value = 0;
    RAIA_TRY(parse_word(words, "strategy", text, &value));
    *out = (enum shard_strategy)value;
    return RAIA_OK;
}

raia_status shard_parse_wrap(const char *text, enum wrap_policy *out)
{
    static const struct word words[] = { { "size", WRAP_SIZE },
                                         { "block", WRAP_BLOCK },
                                         { NULL, 0 } };
    int value = 0;
    RAIA_TRY(parse_word(words, "wrap policy", text, &value));
    *out = (enum wrap_policy)value;
    return RAIA_OK;
}

raia_status shard_parse_precision(const char *text, enum precision *out)
{
    static const struct word words[] = { { "f32", PRECISION_F32 },
                                         { "bf16", PRECISION_BF16 },
                                         { "mixed", PRECISION_MIXED },
                                         { NULL, 0 } };
    int value = 0;
    RAIA_TRY(parse_word(words, "dtype", text, &value));
    *out = (enum precision)value;
    return RAIA_OK;
}

/* ---- policies: each marks the modules that become units, besides the root ---- */

struct marks {
    const struct tree *tree;
    uint64_t least;
    bool *wrapped; /* [modules] */
    int *seen;     /* [params]: the last module that counted it, + 1 */
};

/* Elements of the subtree's parameters, each counted once. */
static uint64_t subtree_count(const struct marks *m, int module)
{
    const struct module *top = &m->tree->module[module];
    const struct module *last = &m->tree->module[top->end - 1];
    uint64_t count = 0;
    for (int i = top->first_param; i < last->first_param + last->params; i++) {
        int p = m->tree->own[i];
        if (m->seen[p] != module + 1)
            count += m->tree->param[p].count;
        m->seen[p] = module + 1;
    }
    return count;
}

/* PyTorch's _recursive_wrap with size_based_auto_wrap_policy (torch/distributed/fsdp/wrap.py);
 * returns the elements that are now in units. The depth is the tree's: five. */
static uint64_t mark_by_size(const struct marks *m, int module)
{
    const struct module *top = &m->tree->module[module];
    uint64_t count = subtree_count(m, module), wrapped = 0;
    if (count < m->least)
        return 0;
    for (int c = module + 1; c < top->end; c = m->tree->module[c].end)
        wrapped += mark_by_size(m, c);
    /* What two children share counts in each of them, so that more may be wrapped than there is. */
    bool enough = count > wrapped && count - wrapped >= m->least;
    if (module == 0 || top->list || !enough)
        return wrapped;
    m->wrapped[module] = true;
    return count;
}

static void mark_blocks(const struct marks *m)
{
    for (int i = 1; i < m->tree->modules; i++) {
        const struct module *module = &m->tree->module[i];
        bool vocabulary =
            strcmp(module->name, "model.embed_tokens") == 0 || strcmp(module->name, "lm_head") == 0;
        m->wrapped[i] = vocabulary || m->tree->module[module->parent].list;
    }
}

/* ---- units from marks ---- */

static int nearest_mark(const struct marks *m, int module)
{
    while (module > 0 && !m->wrapped[module])
        module = m->tree->module[module].parent;
    return module;
}

/* A parameter belongs to the nearest marked module above its first owner; a module whose parameters
 * all went elsewhere (a tied head) is no unit. */
static raia_status collect(const struct marks *m, struct unit_list *out)
{
    const struct tree *tree = m->tree;
    int *unit_of_module; /* + 1 */
    RAIA_TRY(MEM_NEW(&unit_of_module, (size_t)tree->modules));
    for (int p = 0; p < tree->params; p++)
        unit_of_module[nearest_mark(m, tree->param[p].module)] = 1;
    for (int i = 0; i < tree->modules; i++)
        if (unit_of_module[i] != 0) {
            out->unit[out->units].module = i;
            unit_of_module[i] = ++out->units;
        }
    for (int p = 0; p < tree->params; p++) {
        int u = unit_of_module[nearest_mark(m, tree->param[p].module)] - 1;
        out->unit_of[p] = u;
        out->unit[u].params++;
        out->unit[u].count += tree->param[p].count;
    }
    free(unit_of_module);
    for (int u = 0; u < out->units; u++) {
        RAIA_TRY(MEM_NEW(&out->unit[u].param, (size_t)out->unit[u].params + 1));
        out->unit[u].params = 0;
    }
    for (int p = 0; p < tree->params; p++) {
        struct unit *unit = &out->unit[out->unit_of[p]];
        unit->param[unit->params++] = p;
    }
    return RAIA_OK;
}

static raia_status build(struct marks *m, enum wrap_policy policy, struct unit_list *out)
{
    RAIA_TRY(MEM_NEW(&m->wrapped, (size_t)m->tree->modules));
    RAIA_TRY(MEM_NEW(&m->seen, (size_t)m->tree->params));
    RAIA_TRY(MEM_NEW(&out->unit, (size_t)m->tree->modules));
    RAIA_TRY(MEM_NEW(&out->unit_of, (size_t)m->tree->params));
    if (policy == WRAP_SIZE)
        mark_by_size(m, 0);
    else
        mark_blocks(m);
    return collect(m, out);
}

raia_status units_build(const struct tree *tree, enum wrap_policy policy, uint64_t min_params,
                        struct unit_list *out)
{
    struct marks m = { .tree = tree, .least = min_params };
    *out = (struct unit_list){ 0 };
    raia_status status = build(&m, policy, out);
    free(m.wrapped);
    free(m.seen);
    if (status != RAIA_OK)
        units_release(out);
    return status;
}

void units_release(struct unit_list *units)
{
    for (int u = 0; u < units->units; u++)
        free(units->unit[u].param);
    free(units->unit);
    free(units->unit_of);
    *units = (struct unit_list){ 0 };
}
