/* Gradients of the vocabulary's weights. The head's come in blocks of rows, each reduced before the
 * next is made. The embedding's are rows of a few tokens: all ranks see all ranks' rows, and each
 * adds those of its own slice, in the order of ranks and tokens. */
#include "shard/shard_priv.h"

#include <string.h>

static const struct segment *block_of(const struct shard *s, int param, size_t row0)
{
    for (int i = 0; i < s->layout.segments; i++) {
        const struct segment *g = &s->layout.segment[i];
        if (g->home < 0 && g->param == param && g->row0 == row0)
            return g;
    }
    return NULL;
}

raia_status vocabulary_rows(struct param_store *store, size_t row0, size_t rows, void **grad)
{
    struct shard *s = (struct shard *)store;
    const struct segment *g = block_of(s, s->head, row0);
    if (g == NULL || g->rows != rows)
        return fail(RAIA_EBUG, "rows %zu to %zu of the head are no block of it", row0, row0 + rows);
    s->stack_at[g - s->layout.segment] = s->stack.at;
    *grad = stack_push(&s->stack, g->count * raia_dtype_size(s->dtypes.contribution));
    return RAIA_OK;
}

raia_status vocabulary_rows_done(struct param_store *store, size_t row0, size_t rows)
{
    struct shard *s = (struct shard *)store;
    (void)rows;
    const struct segment *g = block_of(s, s->head, row0);
    size_t at = s->stack_at[g - s->layout.segment];
    RAIA_TRY(reduce_segment(s, g, s->stack.base != NULL ? s->stack.base + at : NULL));
    stack_pop(&s->stack, at);
    return RAIA_OK;
}

/* The rows that this rank's slice of block G holds. */
static raia_status embed_block(struct shard *s, const struct segment *g)
{
    const struct param *p = &s->tree->param[g->param];
    const struct ops *ops = s->device->ops;
    size_t first = g->begin[s->layout.rank], end = g->begin[s->layout.rank + 1];
    void *out = state_at(s->grad, layout_slice_at(&s->layout, g), s->dtypes.grad);
    if (end == first && !s->device->planning)
        return RAIA_OK;
    if (s->passes == 0 && s->embed != s->head && !s->device->planning)
        RAIA_TRY(ops->zero(s->device, out, (end - first) * raia_dtype_size(s->dtypes.grad)));
    const struct embed_bwd a = { .dy = s->all_dy,
                                 .tokens = s->all_tokens,
                                 .dtable = out,
                                 .count = s->max_tokens * (size_t)s->layout.size,
                                 .cols = p->cols,
                                 .row0 = g->row0 + first / p->cols,
                                 .rows = (end - first) / p->cols,
                                 .dtype = s->dtypes.weight,
                                 .out_dtype = s->dtypes.grad };
    return ops->embed_bwd(s->device, &a);
}

/* Places of samples that a rank lacks hold a token that no row has. */
static raia_status publish(struct shard *s, const uint32_t *tokens, const void *dy, size_t count)
{
    size_t line = s->tree->param[s->embed].cols * raia_dtype_size(s->dtypes.weight);
    size_t first = s->max_tokens * (size_t)s->layout.rank;
    uint32_t *mine = s->all_tokens + first;
    if (count > 0) {
        RAIA_TRY(s->device->ops->copy(s->device, mine, tokens, count * sizeof *tokens));
        RAIA_TRY(s->device->ops->copy(s->device, s->all_dy + first * line, dy, count * line));
    }
    memset(mine + count, 0xff, (s->max_tokens - count) * sizeof *mine);
    return RAIA_OK;
}

raia_status vocabulary_embed(struct param_store *store, const uint32_t *tokens, const void *dy,
                             size_t count)
{
    struct shard *s = (struct shard *)store;
    if (s->device->planning) {
        s->max_tokens = count;
        return RAIA_OK;
    }
    RAIA_TRY(publish(s, tokens, dy, count));
    RAIA_TRY(raia_barrier(s->comm));
    for (int i = 0; i < s->layout.segments; i++)
        if (s->layout.segment[i].home < 0 && s->layout.segment[i].param == s->embed)
            RAIA_TRY(embed_block(s, &s->layout.segment[i]));
    /* Nobody overwrites the rows before all have added theirs. */
    return raia_barrier(s->comm);
}

raia_status vocabulary_plan_end(struct shard *s)
{
    size_t line = s->tree->param[s->embed].cols * raia_dtype_size(s->dtypes.weight);
    size_t rows;
    void *p;
    int32_t tokens = (int32_t)s->max_tokens;
    RAIA_TRY(raia_all_reduce(s->comm, &tokens, &tokens, 1, RAIA_I32, RAIA_MAX));
    s->max_tokens = (size_t)tokens;
    rows = s->max_tokens * (size_t)s->layout.size;
    RAIA_TRY(comm_map_node(s->comm, rows * line, "the embedding's gradient", &p));
    s->all_dy = p;
    RAIA_TRY(comm_map_node(s->comm, rows * sizeof *s->all_tokens, "tokens of a step", &p));
    s->all_tokens = p;
    s->device->planning = true;
    raia_status status = RAIA_OK;
    for (int i = 0; status == RAIA_OK && i < s->layout.segments; i++)
        if (s->layout.segment[i].home < 0 && s->layout.segment[i].param == s->embed)
            status = embed_block(s, &s->layout.segment[i]);
    s->device->planning = false;
    return status == RAIA_OK ? device_plan_end(s->device) : status;
}
