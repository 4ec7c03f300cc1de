/* Where every parameter lies, and which part of it is whose. */
#include "shard/shard_priv.h"

#include <stdlib.h>
#include <string.h>

enum { PARAM_ALIGN = 64, SLICE_ALIGN = 16, ROW_BLOCK_BYTES = 32 << 20 };

static uint64_t round_up(uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

int vocabulary_param(const struct tree *tree, const char *module)
{
    int m = tree_find_module(tree, module);
    return m < 0 ? -1 : tree->own[tree->module[m].first_param];
}

struct dtypes shard_dtypes(enum precision precision)
{
    static const struct dtypes table[] = {
        [PRECISION_F32] = { RAIA_F32, RAIA_F32, RAIA_F32, RAIA_F32, false },
        [PRECISION_BF16] = { RAIA_BF16, RAIA_BF16, RAIA_BF16, RAIA_BF16, false },
        [PRECISION_MIXED] = { RAIA_BF16, RAIA_BF16, RAIA_F32, RAIA_F32, true },
    };
    return table[precision];
}

/* Rows of a vocabulary block. */
static size_t rows_of_block(const struct tree *tree, const struct shard_options *options)
{
    const struct param *p = &tree->param[vocabulary_param(tree, "lm_head")];
    size_t bytes = options->row_block_bytes > 0 ? options->row_block_bytes : ROW_BLOCK_BYTES;
    size_t line = p->cols * raia_dtype_size(shard_dtypes(options->precision).contribution);
    size_t rows = bytes / line;
    return rows < 1 ? 1 : rows > p->rows ? p->rows : rows;
}

/* ---- which segment a parameter goes to ---- */

/* The decoder layer above MODULE; -1: none. */
static int layer_of(const struct tree *tree, int module)
{
    for (int m = module; m > 0; m = tree->module[m].parent)
        if (tree->module[tree->module[m].parent].list)
            return m;
    return -1;
}

static bool is_inside(const struct tree *tree, int module, int ancestor)
{
    return module >= ancestor && module < tree->module[ancestor].end;
}

static int common_home(const struct tree *tree, int a, int b)
{
    while (!is_inside(tree, b, a))
        a = tree->module[a].parent;
    return a;
}

/* Gradients of parameters P and Q become whole together, and both are of one unit. */
static bool together(const struct tree *tree, const struct unit_list *units, int p, int q)
{
    int a = tree->param[p].module, b = tree->param[q].module;
    if (units->unit_of[p] != units->unit_of[q])
        return false;
    return a == b || (layer_of(tree, a) >= 0 && layer_of(tree, a) == layer_of(tree, b));
}

/* ---- slices ---- */

static raia_status slice_evenly(struct layout *l, struct segment *s)
{
    size_t each;
    RAIA_TRY(MEM_NEW(&s->begin, (size_t)l->size + 1));
    s->count = round_up(s->count, (uint64_t)SLICE_ALIGN * (uint64_t)l->size);
    each = s->count / (size_t)l->size;
    for (int r = 0; r <= l->size; r++)
        s->begin[r] = each * (size_t)r;
    return RAIA_OK;
}

static raia_status slice_rows(struct layout *l, struct segment *s, size_t cols)
{
    RAIA_TRY(MEM_NEW(&s->begin, (size_t)l->size + 1));
    for (int r = 0; r <= l->size; r++)
        s->begin[r] = s->rows * (size_t)r / (size_t)l->size * cols;
    return RAIA_OK;
}

/* ---- the passes of layout_build ---- */

static raia_status add_vocabulary(struct layout *l, const struct tree *tree, int p, int unit)
{
    const struct param *param = &tree->param[p];
    for (size_t row = 0; row < param->rows; row += l->row_block) {
        struct segment *s = &l->segment[l->segments++];
        size_t rows = param->rows - row < l->row_block ? param->rows - row : l->row_block;
        *s = (struct segment){ .unit = unit,
                               .home = -1,
                               .first_part = l->parts,
                               .parts = 1,
                               .param = p,
                               .row0 = row,
                               .rows = rows,
                               .count = rows * param->cols };
        l->part[l->parts++] =
            (struct part){ .param = p, .first = row * param->cols, .count = s->count };
        RAIA_TRY(slice_rows(l, s, param->cols));
    }
    return RAIA_OK;
}

/* The segment that parameter P opens: P and the later ones that go together with it. */
static raia_status add_segment(struct layout *l, const struct tree *tree,
                               const struct unit_list *units, int first, bool *placed)
{
    struct segment *s = &l->segment[l->segments++];
    *s = (struct segment){ .unit = units->unit_of[first],
                           .home = tree->param[first].module,
                           .first_part = l->parts };
    for (int p = first; p < tree->params; p++) {
        const struct param *param = &tree->param[p];
        if (placed[p] || !together(tree, units, first, p))
            continue;
        s->home = common_home(tree, s->home, param->module);
        l->part[l->parts++] = (struct part){ .param = p, .count = param->count, .at = s->count };
        s->parts++;
        s->count = round_up(s->count + param->count, PARAM_ALIGN);
        placed[p] = true;
    }
    return slice_evenly(l, s);
}

static uint64_t own_begin(const struct layout *l, const struct segment *s)
{
    return l->replicated ? 0 : s->begin[l->rank];
}

static uint64_t own_end(const struct layout *l, const struct segment *s)
{
    return l->replicated ? s->count : s->begin[l->rank + 1];
}

uint64_t layout_slice_at(const struct layout *l, const struct segment *s)
{
    return s->own_at + (s->begin[l->rank] - own_begin(l, s));
}

static void place_all(struct layout *l)
{
    for (int i = 0; i < l->segments; i++) {
        struct segment *s = &l->segment[i];
        if (s->home >= 0 || s->row0 == 0) {
            l->elements = round_up(l->elements, PARAM_ALIGN);
            l->own_elements = round_up(l->own_elements, PARAM_ALIGN);
        }
        s->at = l->elements;
        s->own_at = l->own_elements;
        l->elements += s->count;
        l->own_elements += own_end(l, s) - own_begin(l, s);
        l->largest = s->count > l->largest ? s->count : l->largest;
        for (int j = s->first_part; j < s->first_part + s->parts; j++)
            if (l->part[j].first == 0)
                l->param_at[l->part[j].param] = s->at + l->part[j].at;
    }
}

static void link_homes(struct layout *l, int modules)
{
    for (int m = 0; m < modules; m++)
        l->first_of[m] = -1;
    for (int i = l->segments - 1; i >= 0; i--) {
        struct segment *s = &l->segment[i];
        s->next = -1;
        if (s->home < 0)
            continue;
        s->next = l->first_of[s->home];
        l->first_of[s->home] = i;
    }
}

/* The parts of this rank's slices; padding belongs to none. */
static void cut_pieces(struct layout *l)
{
    for (int i = 0; i < l->segments; i++) {
        const struct segment *s = &l->segment[i];
        uint64_t from = own_begin(l, s), to = own_end(l, s);
        for (int j = s->first_part; j < s->first_part + s->parts; j++) {
            const struct part *p = &l->part[j];
            uint64_t a = p->at > from ? p->at : from;
            uint64_t b = p->at + p->count < to ? p->at + p->count : to;
            if (a >= b)
                continue;
            l->piece[l->pieces++] = (struct piece){ .param = p->param,
                                                    .first = p->first + (a - p->at),
                                                    .count = b - a,
                                                    .at = s->at + a,
                                                    .own_at = s->own_at + (a - from) };
        }
    }
}

static raia_status build(struct layout *l, const struct tree *tree, const struct unit_list *units,
                         bool *placed)
{
    int embed = vocabulary_param(tree, "model.embed_tokens");
    int head = vocabulary_param(tree, "lm_head");
    for (int p = 0; p < tree->params; p++) {
        if (placed[p])
            continue;
        if (p == embed || p == head)
            RAIA_TRY(add_vocabulary(l, tree, p, units->unit_of[p]));
        else
            RAIA_TRY(add_segment(l, tree, units, p, placed));
    }
    place_all(l);
    link_homes(l, tree->modules);
    cut_pieces(l);
    return RAIA_OK;
}

raia_status layout_build(struct layout *l, const struct tree *tree, const struct unit_list *units,
                         const struct world *world, const struct shard_options *options)
{
    bool *placed;
    size_t row_block = rows_of_block(tree, options);
    size_t blocks = 2 * (tree->param[0].rows / row_block + 1);
    size_t most = (size_t)tree->params + blocks;
    *l = (struct layout){ .rank = world->rank,
                          .size = world->size,
                          .replicated = options->strategy == SHARD_NONE,
                          .row_block = row_block };
    RAIA_TRY(MEM_NEW(&l->segment, most));
    RAIA_TRY(MEM_NEW(&l->part, most));
    RAIA_TRY(MEM_NEW(&l->piece, most));
    RAIA_TRY(MEM_NEW(&l->first_of, (size_t)tree->modules));
    RAIA_TRY(MEM_NEW(&l->param_at, (size_t)tree->params));
    RAIA_TRY(MEM_NEW(&placed, (size_t)tree->params));
    raia_status status = build(l, tree, units, placed);
    free(placed);
    return status;
}

void layout_release(struct layout *l)
{
    for (int i = 0; i < l->segments; i++)
        free(l->segment[i].begin);
    free(l->segment);
    free(l->part);
    free(l->piece);
    free(l->first_of);
    free(l->param_at);
    *l = (struct layout){ 0 };
}
