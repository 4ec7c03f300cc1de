/* The plain store: all weights and gradients in one rank's memory. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

struct local_store {
    struct param_store base;
    struct device *device;
    const struct tree *tree;
    size_t weight_bytes, grad_bytes;
    void *weights, *grads; /* of the device */
    void **all_grads;      /* [params], vocabulary weights too */
    int embed, head;       /* params */
};

static struct local_store *of(struct param_store *base)
{
    return (struct local_store *)base;
}

static raia_status no_event(struct param_store *store, int module, enum pass pass)
{
    (void)store;
    (void)module;
    (void)pass;
    return RAIA_OK;
}

static raia_status head_rows(struct param_store *base, size_t row0, size_t rows, void **grad)
{
    (void)rows;
    struct local_store *s = of(base);
    size_t line = s->tree->param[s->head].cols * raia_dtype_size(base->grad_dtype);
    *grad = (char *)s->all_grads[s->head] + row0 * line;
    return RAIA_OK;
}

static raia_status head_rows_done(struct param_store *base, size_t row0, size_t rows)
{
    (void)base;
    (void)row0;
    (void)rows;
    return RAIA_OK;
}

static raia_status embed_grad(struct param_store *base, const uint32_t *tokens, const void *dy,
                              size_t count)
{
    struct local_store *s = of(base);
    const struct param *p = &s->tree->param[s->embed];
    void *grad = s->all_grads[s->embed];
    if (s->embed != s->head && !s->device->planning)
        RAIA_TRY(
            s->device->ops->zero(s->device, grad, p->count * raia_dtype_size(base->grad_dtype)));
    if (count == 0)
        return RAIA_OK;
    const struct embed_bwd a = { .dy = dy,
                                 .tokens = tokens,
                                 .dtable = grad,
                                 .count = count,
                                 .cols = p->cols,
                                 .rows = p->rows,
                                 .dtype = base->dtype,
                                 .out_dtype = base->grad_dtype };
    return s->device->ops->embed_bwd(s->device, &a);
}

static int vocabulary_param(const struct tree *tree, const char *module)
{
    int m = tree_find_module(tree, module);
    return m < 0 ? -1 : tree->own[tree->module[m].first_param];
}

/* Each parameter at a multiple of 64 bytes; returns the bytes of all. */
static size_t lay_out(const struct tree *tree, size_t size, char *base, void **out)
{
    size_t at = 0;
    for (int p = 0; p < tree->params; p++) {
        if (base != NULL)
            out[p] = base + at;
        at += (tree->param[p].count * size + 63) / 64 * 64;
    }
    return at;
}

static raia_status open_store(struct local_store *s)
{
    size_t params = (size_t)s->tree->params;
    s->embed = vocabulary_param(s->tree, "model.embed_tokens");
    s->head = vocabulary_param(s->tree, "lm_head");
    if (s->embed < 0 || s->head < 0)
        return fail(RAIA_EBUG, "the tree has no vocabulary");
    s->base.row_block = s->tree->param[s->head].rows;
    RAIA_TRY(MEM_NEW(&s->base.weight, params));
    RAIA_TRY(MEM_NEW(&s->base.grad, params));
    RAIA_TRY(MEM_NEW(&s->all_grads, params));
    size_t w = raia_dtype_size(s->base.dtype), g = raia_dtype_size(s->base.grad_dtype);
    s->weight_bytes = lay_out(s->tree, w, NULL, NULL);
    s->grad_bytes = lay_out(s->tree, g, NULL, NULL);
    RAIA_TRY(s->device->ops->alloc(s->device, s->weight_bytes, &s->weights));
    RAIA_TRY(s->device->ops->alloc(s->device, s->grad_bytes, &s->grads));
    lay_out(s->tree, w, s->weights, s->base.weight);
    lay_out(s->tree, g, s->grads, s->all_grads);
    memcpy(s->base.grad, s->all_grads, params * sizeof *s->all_grads);
    s->base.grad[s->embed] = s->base.grad[s->head] = NULL;
    return RAIA_OK;
}

raia_status local_store_new(struct local_store **out, struct device *device,
                            const struct tree *tree, raia_dtype dtype, raia_dtype grad_dtype)
{
    struct local_store *s;
    RAIA_TRY(MEM_NEW(&s, 1));
    s->device = device;
    s->tree = tree;
    s->base = (struct param_store){ .dtype = dtype,
                                    .grad_dtype = grad_dtype,
                                    .enter = no_event,
                                    .leave = no_event,
                                    .head_rows = head_rows,
                                    .head_rows_done = head_rows_done,
                                    .embed_grad = embed_grad };
    raia_status status = open_store(s);
    if (status != RAIA_OK) {
        local_store_free(s);
        return status;
    }
    *out = s;
    return RAIA_OK;
}

void local_store_free(struct local_store *s)
{
    if (s == NULL)
        return;
    if (s->weights != NULL)
        s->device->ops->release(s->device, s->weights, s->weight_bytes);
    if (s->grads != NULL)
        s->device->ops->release(s->device, s->grads, s->grad_bytes);
    free(s->base.weight);
    free(s->base.grad);
    free(s->all_grads);
    free(s);
}

struct param_store *local_store_base(struct local_store *store)
{
    return &store->base;
}

void *local_store_grad(struct local_store *store, int param)
{
    return store->all_grads[param];
}
