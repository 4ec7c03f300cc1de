/* The two ends of a step: weights are whole before it, and each rank's slices are updated after. */
#include "shard/shard_priv.h"

#include <math.h>
#include <string.h>

raia_status shard_step_begin(struct shard *s)
{
    s->passes = 0;
    /* All ranks have written their slices of the weights. */
    return raia_barrier(s->comm);
}

raia_status shard_eval_begin(struct shard *s)
{
    return raia_barrier(s->comm);
}

raia_status shard_eval_end(struct shard *s)
{
    /* All ranks have read the weights before any writes them again. */
    return raia_barrier(s->comm);
}

/* The 2-norm of all gradients. The sum over the ranks also means that all have left the backward:
 * nobody reads the weights any more. */
static raia_status gradient_norm(struct shard *s, double *norm)
{
    double total = 0;
    size_t pieces = (size_t)s->layout.pieces;
    if (s->layout.replicated) /* each rank reads what the others summed */
        RAIA_TRY(raia_barrier(s->comm));
    for (size_t i = 0; i < pieces; i++) {
        const struct piece *p = &s->layout.piece[i];
        const struct sq_sum a = { .x = state_at(s->grad, p->own_at, s->dtypes.grad),
                                  .out = &s->sums[i],
                                  .count = p->count,
                                  .dtype = s->dtypes.grad };
        RAIA_TRY(s->device->ops->sq_sum(s->device, &a));
    }
    if (pieces > 0)
        RAIA_TRY(s->device->ops->copy(s->device, s->host_sums, s->sums, pieces * sizeof *s->sums));
    for (size_t i = 0; i < pieces; i++)
        total += s->host_sums[i];
    if (!s->layout.replicated)
        RAIA_TRY(comm_sum_f64(s->comm, &total, 1));
    *norm = sqrt(total);
    return RAIA_OK;
}

static raia_status update_piece(struct shard *s, const struct piece *p, const struct shard_adamw *o,
                                uint64_t step)
{
    const struct dtypes *d = &s->dtypes;
    const char *name = s->tree->param[p->param].name;
    const struct adamw a = { .param = weight_at(s, p->at),
                             .m = state_at(s->m, p->own_at, d->state),
                             .v = state_at(s->v, p->own_at, d->state),
                             .master = d->master ? s->master + p->own_at : NULL,
                             .grad = state_at(s->grad, p->own_at, d->grad),
                             .count = p->count,
                             .param_dtype = d->weight,
                             .grad_dtype = d->grad,
                             .state_dtype = d->state,
                             .lr = o->lr,
                             .beta1 = o->beta1,
                             .beta2 = o->beta2,
                             .eps = o->eps,
                             .weight_decay = o->weight_decay,
                             .grad_scale = s->scale,
                             .step = step,
                             .stochastic = o->stochastic,
                             .seed = o->seed,
                             .tensor = str_hash(name, strlen(name)),
                             .element0 = p->first };
    return s->device->ops->adamw(s->device, &a);
}

raia_status shard_step_end(struct shard *s, const struct shard_adamw *adamw, uint64_t step,
                           double *grad_norm)
{
    RAIA_TRY(gradient_norm(s, grad_norm));
    /* torch.nn.utils.clip_grad_norm_ */
    double clip = adamw->grad_clip > 0 ? adamw->grad_clip / (*grad_norm + 1e-6) : 1;
    float scale = clip < 1 ? (float)clip : 1;
    RAIA_TRY(s->device->ops->copy(s->device, s->scale, &scale, sizeof scale));
    for (int i = 0; i < s->layout.pieces; i++)
        RAIA_TRY(update_piece(s, &s->layout.piece[i], adamw, step));
    return RAIA_OK;
}
