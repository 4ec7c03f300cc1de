/* adamw: the scalars of an AdamW step, made once a call in f64 as torch does, and the step on one
 * element. Only operations that IEEE 754 rounds exactly, none fused: vector code has the same bits.
 */
#ifndef RAIA_KERNELS_ADAMW_H
#define RAIA_KERNELS_ADAMW_H

#include "tensor/scalar.h"
#include "tensor/tensor.h"

#include <math.h>

struct adamw_scalars {
    float decay, rate1, beta2, rate2, step_size, inverse_root, eps, grad_scale;
    uint64_t key; /* of the stochastic rounding */
};

/* Stochastic rounding draws 64 bits an element: param takes bits 0-15, m 16-31, v 32-47. */
enum { ADAMW_SHIFT_PARAM = 0, ADAMW_SHIFT_M = 16, ADAMW_SHIFT_V = 32 };

static inline struct adamw_scalars adamw_scalars(const struct adamw *a)
{
    double correction1 = 1.0 - pow(a->beta1, (double)a->step);
    double correction2 = 1.0 - pow(a->beta2, (double)a->step);
    return (struct adamw_scalars){
        .decay = (float)(1.0 - a->lr * a->weight_decay),
        .rate1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rate2 = (float)(1.0 - a->beta2),
        .step_size = (float)(a->lr / correction1),
        .inverse_root = (float)(1.0 / sqrt(correction2)),
        .eps = (float)a->eps,
        .grad_scale = a->grad_scale != NULL ? *a->grad_scale : 1.0f,
        .key = random_key(a->seed, random_mix(a->tensor) + a->step),
    };
}

struct adamw_element {
    float param, m, v;
};

static inline void adamw_step(const struct adamw_scalars *s, struct adamw_element *e, float grad)
{
    float g = grad * s->grad_scale;
    e->param = e->param * s->decay;
    e->m = e->m + s->rate1 * (g - e->m);
    e->v = e->v * s->beta2 + s->rate2 * g * g;
    float denominator = sqrtf(e->v) * s->inverse_root + s->eps;
    e->param = e->param - s->step_size * e->m / denominator;
}

#endif
