/* Making an engine and taking it down. */
#include "shard/shard_priv.h"

#include <stdlib.h>

/* Replicas sum each a slice of the gradients and read all of them. */
static raia_status allocate_gradients(struct shard *s, size_t bytes)
{
    return s->layout.replicated ? comm_map_node(s->comm, bytes, "the gradients", &s->grad)
                                : s->device->ops->alloc(s->device, bytes, &s->grad);
}

/* Gradients and optimizer state of what this rank owns. */
static raia_status allocate_own(struct shard *s)
{
    const struct ops *ops = s->device->ops;
    const struct dtypes *d = &s->dtypes;
    size_t n = s->layout.own_elements > 0 ? s->layout.own_elements : 1;
    size_t state = n * raia_dtype_size(d->state);
    size_t pieces = (size_t)s->layout.pieces + 1;
    void *p;
    RAIA_TRY(allocate_gradients(s, n * raia_dtype_size(d->grad)));
    RAIA_TRY(ops->alloc(s->device, state, &s->m));
    RAIA_TRY(ops->alloc(s->device, state, &s->v));
    if (d->master) {
        RAIA_TRY(ops->alloc(s->device, n * sizeof(float), &p));
        s->master = p;
    }
    RAIA_TRY(ops->alloc(s->device, pieces * sizeof(double), &p));
    s->sums = p;
    RAIA_TRY(ops->alloc(s->device, sizeof(float), &p));
    s->scale = p;
    RAIA_TRY(ops->alloc(s->device, STAGE_ELEMENTS * sizeof(float), &s->stage_device));
    RAIA_TRY(MEM_NEW(&s->host_sums, pieces));
    RAIA_TRY(mem_alloc(&s->stage_host, STAGE_ELEMENTS, sizeof(float)));
    return MEM_NEW(&s->stack_at, (size_t)s->layout.segments);
}

static size_t weight_bytes(const struct shard *s)
{
    return s->layout.elements * raia_dtype_size(s->dtypes.weight);
}

static raia_status map_weights(struct shard *s)
{
    void *p;
    size_t bytes = weight_bytes(s);
    if (s->layout.replicated)
        RAIA_TRY(s->device->ops->alloc(s->device, bytes, &p));
    else
        RAIA_TRY(comm_map_node(s->comm, bytes, "the weights", &p));
    s->weights = p;
    RAIA_TRY(MEM_NEW(&s->store.weight, (size_t)s->tree->params));
    RAIA_TRY(MEM_NEW(&s->store.grad, (size_t)s->tree->params));
    for (int i = 0; i < s->tree->params; i++)
        s->store.weight[i] = weight_at(s, s->layout.param_at[i]);
    return RAIA_OK;
}

static raia_status open_shard(struct shard *s)
{
    const struct world *world = comm_world(s->comm);
    s->embed = vocabulary_param(s->tree, "model.embed_tokens");
    s->head = vocabulary_param(s->tree, "lm_head");
    if (s->embed < 0 || s->head < 0)
        return fail(RAIA_EBUG, "the tree has no vocabulary");
    RAIA_TRY(units_build(s->tree, s->options.wrap, s->options.min_unit_params, &s->units));
    RAIA_TRY(layout_build(&s->layout, s->tree, &s->units, world, &s->options));
    s->store = (struct param_store){ .dtype = s->dtypes.weight,
                                     .grad_dtype = s->dtypes.contribution,
                                     .enter = event_enter,
                                     .leave = event_leave,
                                     .row_block = s->layout.row_block,
                                     .head_rows = vocabulary_rows,
                                     .head_rows_done = vocabulary_rows_done,
                                     .embed_grad = vocabulary_embed };
    RAIA_TRY(map_weights(s));
    return allocate_own(s);
}

raia_status shard_new(struct shard **out, struct device *device, raia_comm *comm,
                      const struct tree *tree, const struct shard_options *options)
{
    struct shard *s;
    RAIA_TRY(MEM_NEW(&s, 1));
    s->device = device;
    s->comm = comm;
    s->tree = tree;
    s->options = *options;
    s->dtypes = shard_dtypes(options->precision);
    raia_status status = open_shard(s);
    if (status != RAIA_OK) {
        shard_free(s);
        return status;
    }
    *out = s;
    return RAIA_OK;
}

static void release(struct shard *s, void *p, size_t bytes)
{
    if (p != NULL)
        s->device->ops->release(s->device, p, bytes);
}

void shard_free(struct shard *s)
{
    if (s == NULL)
        return;
    size_t n = s->layout.own_elements > 0 ? s->layout.own_elements : 1;
    size_t state = n * raia_dtype_size(s->dtypes.state);
    if (s->layout.replicated)
        release(s, s->weights, weight_bytes(s));
    else
        release(s, s->grad, n * raia_dtype_size(s->dtypes.grad));
    release(s, s->m, state);
    release(s, s->v, state);
    release(s, s->master, n * sizeof(float));
    release(s, s->sums, ((size_t)s->layout.pieces + 1) * sizeof(double));
    release(s, s->scale, sizeof(float));
    release(s, s->stage_device, STAGE_ELEMENTS * sizeof(float));
    free(s->host_sums);
    free(s->stage_host);
    free(s->stack_at);
    free(s->store.weight);
    free(s->store.grad);
    layout_release(&s->layout);
    units_release(&s->units);
    free(s);
}

struct param_store *shard_store(struct shard *shard)
{
    return &shard->store;
}

raia_status shard_plan_end(struct shard *s)
{
    void *p;
    int32_t peak = (int32_t)((s->stack.peak + 4095) / 4096); /* pages: fits i32 up to 8 TiB */
    RAIA_TRY(raia_all_reduce(s->comm, &peak, &peak, 1, RAIA_I32, RAIA_MAX));
    RAIA_TRY(comm_map_ranks(s->comm, (size_t)peak * 4096, "gradients on their way", &p));
    s->stack = (struct stack){ .base = p };
    s->passes = 0;
    s->planned = true;
    return vocabulary_plan_end(s);
}
