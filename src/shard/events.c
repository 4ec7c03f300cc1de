/* What happens as the decoder enters and leaves modules: room for gradients is pushed at a
 * segment's home and reduced when it is left. Weights need nothing here: on one node they lie where
 * every rank reads them. */
#include "shard/shard_priv.h"

enum { STACK_ALIGN = 64 };

void *stack_push(struct stack *stack, size_t bytes)
{
    void *p = stack->base != NULL ? stack->base + stack->at : NULL;
    stack->at += (bytes + STACK_ALIGN - 1) / STACK_ALIGN * STACK_ALIGN;
    if (stack->at > stack->peak)
        stack->peak = stack->at;
    return p;
}

void stack_pop(struct stack *stack, size_t to)
{
    stack->at = to;
}

raia_status reduce_segment(struct shard *s, const struct segment *segment, const void *contribution)
{
    struct comm_request *request;
    const struct comm_reduce reduce = {
        .contribution = contribution,
        .begin = segment->begin,
        .dtype = s->dtypes.contribution,
        .wire_dtype = s->options.reduce_f32 ? RAIA_F32 : s->dtypes.contribution,
        .out_dtype = s->dtypes.grad,
        .out = state_at(s->grad, layout_slice_at(&s->layout, segment), s->dtypes.grad),
        .accumulate = s->passes > 0,
    };
    if (s->device->planning)
        return RAIA_OK;
    RAIA_TRY(comm_reduce_start(s->comm, &reduce, &request));
    return comm_wait(s->comm, request);
}

static void open_contribution(struct shard *s, int index)
{
    const struct segment *segment = &s->layout.segment[index];
    size_t size = raia_dtype_size(s->dtypes.contribution);
    s->stack_at[index] = s->stack.at;
    char *base = stack_push(&s->stack, segment->count * size);
    for (int i = segment->first_part; i < segment->first_part + segment->parts; i++) {
        const struct part *part = &s->layout.part[i];
        s->store.grad[part->param] = base != NULL ? base + part->at * size : NULL;
    }
}

raia_status event_enter(struct param_store *store, int module, enum pass pass)
{
    struct shard *s = (struct shard *)store;
    if (pass != PASS_BACKWARD)
        return RAIA_OK;
    for (int i = s->layout.first_of[module]; i >= 0; i = s->layout.segment[i].next)
        open_contribution(s, i);
    return RAIA_OK;
}

raia_status event_leave(struct param_store *store, int module, enum pass pass)
{
    struct shard *s = (struct shard *)store;
    int first = s->layout.first_of[module];
    if (module == 0 && pass == PASS_BACKWARD)
        s->passes++;
    if (pass != PASS_BACKWARD || first < 0)
        return RAIA_OK;
    for (int i = first; i >= 0; i = s->layout.segment[i].next)
        RAIA_TRY(reduce_segment(s, &s->layout.segment[i],
                                s->stack.base != NULL ? s->stack.base + s->stack_at[i] : NULL));
    stack_pop(&s->stack, s->stack_at[first]);
    return RAIA_OK;
}
