/* Row kernels whose sums the compiler may reorder: norms, rotary embedding, SwiGLU, cross-entropy,
 * attention's softmax. Compiled once for each instruction set. */
#include "kernels/cpu/rows.h"

#include <math.h>

/* ---- norms ---- */

INLINE float inverse_rms(const void *x, raia_dtype t, size_t i, size_t n, float eps)
{
    float sum = 0;
    for (size_t j = 0; j < n; j++)
        sum += get(x, t, i + j) * get(x, t, i + j);
    return 1.0f / sqrtf(sum / (float)n + eps);
}

INLINE void rmsnorm_fwd_row(const struct rmsnorm_fwd *a, size_t r, raia_dtype t)
{
    const void *s = a->x;
    size_t first = r * a->cols;
    if (a->add != NULL) {
        EACH(size_t i = first; i < first + a->cols; i++)
        put(a->sum, t, i, get(a->x, t, i) + get(a->add, t, i));
        s = a->sum;
    }
    float rstd = inverse_rms(s, t, first, a->cols, a->eps);
    a->rstd[r] = rstd;
    EACH(size_t j = 0; j < a->cols; j++)
    put(a->y, t, first + j, rounded(t, get(s, t, first + j) * rstd) * get(a->w, t, j));
}

static void rmsnorm_fwd(const struct rmsnorm_fwd *a, size_t from, size_t to)
{
    for (size_t r = from; r < to; r++)
        BY_TYPE(a->dtype, rmsnorm_fwd_row(a, r, T));
}

INLINE void rmsnorm_bwd_row(const struct rmsnorm_bwd *a, size_t r, float *partial, raia_dtype t)
{
    size_t first = r * a->cols;
    float rstd = a->rstd[r], dot = 0;
    EACH(size_t j = 0; j < a->cols; j++)
    partial[j] += get(a->dy, t, first + j) * rounded(t, get(a->x, t, first + j) * rstd);
    for (size_t j = 0; j < a->cols; j++)
        dot += get(a->dy, t, first + j) * get(a->w, t, j) * get(a->x, t, first + j);
    dot *= rstd * rstd / (float)a->cols;
    if (a->add != NULL) {
        EACH(size_t j = 0; j < a->cols; j++)
        put(a->dx, t, first + j,
            rstd * (get(a->dy, t, first + j) * get(a->w, t, j) - get(a->x, t, first + j) * dot) +
                get(a->add, t, first + j));
        return;
    }
    EACH(size_t j = 0; j < a->cols; j++)
    put(a->dx, t, first + j,
        rstd * (get(a->dy, t, first + j) * get(a->w, t, j) - get(a->x, t, first + j) * dot));
}

static void rmsnorm_bwd(const struct rmsnorm_bwd *a, size_t from, size_t to, float *partial)
{
    memset(partial, 0, a->cols * sizeof *partial);
    for (size_t r = from; r < to; r++)
        BY_TYPE(a->dtype, rmsnorm_bwd_row(a, r, partial, T));
}

INLINE void col_sum_row(const struct col_sum *a, size_t r, float *partial, raia_dtype t)
{
    EACH(size_t j = 0; j < a->cols; j++)
    partial[j] += get(a->x, t, r * a->cols + j);
}

static void col_sum(const struct col_sum *a, size_t from, size_t to, float *partial)
{
    memset(partial, 0, a->cols * sizeof *partial);
    for (size_t r = from; r < to; r++)
        BY_TYPE(a->dtype, col_sum_row(a, r, partial, T));
}

/* ---- rotary embedding ---- */

INLINE void rope_fwd_head(const struct rope_fwd *a, size_t token, size_t head, raia_dtype t)
{
    size_t half = a->head_dim / 2, from = token * a->stride + head * a->head_dim;
    size_t to = token * a->y_stride + head * a->head_dim;
    const float *c = a->cos_sin + token % a->seq * a->head_dim, *s = c + half;
    if (a->norm_w == NULL) {
        EACH(size_t j = 0; j < half; j++)
        {
            float low = get(a->x, t, from + j), high = get(a->x, t, from + half + j);
            put(a->y, t, to + j, low * c[j] - high * s[j]);
            put(a->y, t, to + half + j, high * c[j] + low * s[j]);
        }
        return;
    }
    float rstd = inverse_rms(a->x, t, from, a->head_dim, a->eps);
    a->rstd[token * a->heads + head] = rstd;
    EACH(size_t j = 0; j < half; j++)
    {
        float low = rounded(t, rounded(t, get(a->x, t, from + j) * rstd) * get(a->norm_w, t, j));
        float high = rounded(t, rounded(t, get(a->x, t, from + half + j) * rstd) *
                                    get(a->norm_w, t, half + j));
        put(a->y, t, to + j, low * c[j] - high * s[j]);
        put(a->y, t, to + half + j, high * c[j] + low * s[j]);
    }
}

static void rope_fwd(const struct rope_fwd *a, size_t from, size_t to)
{
    for (size_t token = from; token < to; token++)
        for (size_t head = 0; head < a->heads; head++)
            BY_TYPE(a->dtype, rope_fwd_head(a, token, head, T));
}

INLINE void rope_bwd_plain(const struct rope_bwd *a, size_t token, size_t head, raia_dtype t)
{
    size_t half = a->head_dim / 2, from = token * a->stride + head * a->head_dim;
    size_t to = token * a->dx_stride + head * a->head_dim;
    const float *c = a->cos_sin + token % a->seq * a->head_dim, *s = c + half;
    EACH(size_t j = 0; j < half; j++)
    {
        float low = get(a->dy, t, from + j), high = get(a->dy, t, from + half + j);
        put(a->dx, t, to + j, low * c[j] + high * s[j]);
        put(a->dx, t, to + half + j, high * c[j] - low * s[j]);
    }
}

INLINE void rope_bwd_normed(const struct rope_bwd *a, size_t token, size_t head, float *partial,
                            raia_dtype t)
{
    size_t n = a->head_dim, half = n / 2, from = token * a->stride + head * n;
    size_t to = token * a->dx_stride + head * n;
    const float *c = a->cos_sin + token % a->seq * n, *s = c + half;
    float rstd = a->rstd[token * a->heads + head], grad[256], dot = 0; /* head_dim <= 256 */
    EACH(size_t j = 0; j < half; j++)
    {
        float low = get(a->dy, t, from + j), high = get(a->dy, t, from + half + j);
        grad[j] = low * c[j] + high * s[j];
        grad[half + j] = high * c[j] - low * s[j];
    }
    EACH(size_t j = 0; j < n; j++)
    {
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): head_dim is even */
        partial[j] += grad[j] * rounded(t, get(a->x, t, from + j) * rstd);
        grad[j] *= get(a->norm_w, t, j);
    }
    for (size_t j = 0; j < n; j++)
        dot += grad[j] * get(a->x, t, from + j);
    dot *= rstd * rstd / (float)n;
    EACH(size_t j = 0; j < n; j++)
    put(a->dx, t, to + j, rstd * (grad[j] - get(a->x, t, from + j) * dot));
}

static void rope_bwd(const struct rope_bwd *a, size_t from, size_t to, float *partial)
{
    if (a->norm_w != NULL)
        memset(partial, 0, a->head_dim * sizeof *partial);
    for (size_t token = from; token < to; token++)
        for (size_t head = 0; head < a->heads; head++)
            if (a->norm_w != NULL)
                BY_TYPE(a->dtype, rope_bwd_normed(a, token, head, partial, T));
            else
                BY_TYPE(a->dtype, rope_bwd_plain(a, token, head, T));
}

/* ---- SwiGLU ---- */

INLINE void swiglu_fwd_t(const struct swiglu_fwd *a, size_t from, size_t to, raia_dtype t)
{
    EACH(size_t i = from; i < to; i++)
    {
        float gate = get(a->gate, t, i);
        put(a->y, t, i, gate / (1.0f + exp_of(-gate)) * get(a->up, t, i));
    }
}

static void swiglu_fwd(const struct swiglu_fwd *a, size_t from, size_t to)
{
    BY_TYPE(a->dtype, swiglu_fwd_t(a, from, to, T));
}

INLINE void swiglu_bwd_t(const struct swiglu_bwd *a, size_t from, size_t to, raia_dtype t)
{
    EACH(size_t i = from; i < to; i++)
    {
        float gate = get(a->gate, t, i), up = get(a->up, t, i), dy = get(a->dy, t, i);
        float s = 1.0f / (1.0f + exp_of(-gate));
        put(a->dgate, t, i, dy * up * s * (1.0f + gate * (1.0f - s)));
        put(a->dup, t, i, dy * gate * s);
    }
}

INLINE void swiglu_again_t(const struct swiglu_bwd *a, size_t from, size_t to, raia_dtype t)
{
    EACH(size_t i = from; i < to; i++)
    {
        float gate = get(a->gate, t, i);
        put(a->y, t, i, gate / (1.0f + exp_of(-gate)) * get(a->up, t, i));
    }
}

static void swiglu_bwd(const struct swiglu_bwd *a, size_t from, size_t to)
{
    if (a->y != NULL) /* first: the gradients may overwrite the factors */
        BY_TYPE(a->dtype, swiglu_again_t(a, from, to, T));
    BY_TYPE(a->dtype, swiglu_bwd_t(a, from, to, T));
}

/* ---- cross-entropy ---- */

INLINE void ce_stats_row(const struct ce_stats *a, size_t r, raia_dtype t)
{
    size_t at = r * a->ld, target = (size_t)a->targets[r];
    float old = a->first ? -__builtin_inff() : a->max[r], max = old, sum = 0;
    for (size_t j = 0; j < a->cols; j++) {
        float x = get(a->logits, t, at + j);
        max = x > max ? x : max;
    }
    if (max > -__builtin_inff())
        for (size_t j = 0; j < a->cols; j++)
            sum += exp_of(get(a->logits, t, at + j) - max);
    float kept = old > -__builtin_inff() ? a->sum[r] * exp_of(old - max) : 0;
    a->max[r] = max;
    a->sum[r] = kept + sum;
    if (target >= a->col0 && target - a->col0 < a->cols)
        a->target_logit[r] = get(a->logits, t, at + target - a->col0);
}

static void ce_stats(const struct ce_stats *a, size_t from, size_t to)
{
    for (size_t r = from; r < to; r++)
        if (a->targets[r] >= 0)
            BY_TYPE(a->dtype, ce_stats_row(a, r, T));
}

INLINE void ce_bwd_row(const struct ce_bwd *a, size_t r, raia_dtype t)
{
    size_t at = r * a->ld, target = (size_t)a->targets[r];
    float lse = a->lse[r], scale = a->scale, right = 0;
    bool here = target >= a->col0 && target - a->col0 < a->cols;
    if (here)
        right = (exp_of(get(a->logits, t, at + target - a->col0) - lse) - 1.0f) * scale;
    EACH(size_t j = 0; j < a->cols; j++)
    put(a->logits, t, at + j, exp_of(get(a->logits, t, at + j) - lse) * scale);
    if (here)
        put(a->logits, t, at + target - a->col0, right);
}

static void ce_bwd(const struct ce_bwd *a, size_t from, size_t to)
{
    for (size_t r = from; r < to; r++)
        if (a->targets[r] >= 0)
            BY_TYPE(a->dtype, ce_bwd_row(a, r, T));
        else
            memset(element_at_mut(a->logits, a->dtype, r * a->ld), 0,
                   a->cols * raia_dtype_size(a->dtype));
}

/* ---- attention's softmax ---- */

INLINE void softmax_row(const struct score_block *b, size_t i, raia_dtype t)
{
    const float *s = b->scores + i * b->cols;
    size_t seen = b->first + i + 1, at = i * b->cols;
    float max = -__builtin_inff(), sum = 0;
    for (size_t j = 0; j < seen; j++)
        max = s[j] > max ? s[j] : max;
    for (size_t j = 0; j < seen; j++)
        sum += exp_of((s[j] - max) * b->scale);
    float inverse = 1.0f / sum, scale = b->scale;
    EACH(size_t j = 0; j < seen; j++)
    put(b->p, t, at + j, exp_of((s[j] - max) * scale) * inverse);
    for (size_t j = seen; j < b->cols; j++)
        put(b->p, t, at + j, 0);
    b->lse[i] = logf(sum) + max * scale;
}

static void softmax(const struct score_block *b)
{
    for (size_t i = 0; i < b->rows; i++)
        BY_TYPE(b->dtype, softmax_row(b, i, T));
}

INLINE void softmax_bwd_row(const struct score_grad *g, size_t i, raia_dtype t)
{
    const struct score_block *b = &g->block;
    size_t seen = b->first + i + 1, at = i * b->cols;
    const float *s = b->scores + at, *dp = g->dp + at;
    float delta = 0, lse = b->lse[i], scale = b->scale;
    for (size_t d = 0; d < g->head_dim; d++)
        delta += get(g->out, t, i * g->stride + d) * get(g->dout, t, i * g->stride + d);
    EACH(size_t j = 0; j < seen; j++)
    {
        float p = exp_of(s[j] * scale - lse);
        put(g->ds, t, at + j, p * (dp[j] - delta) * scale);
        put(b->p, t, at + j, p);
    }
    for (size_t j = seen; j < b->cols; j++) {
        put(b->p, t, at + j, 0);
        put(g->ds, t, at + j, 0);
    }
}

static void softmax_bwd(const struct score_grad *g)
{
    for (size_t i = 0; i < g->block.rows; i++)
        BY_TYPE(g->block.dtype, softmax_bwd_row(g, i, T));
}

/* ---- the set ---- */

#define X(type, name, args) type ROWS(name) args;
#include "kernels/cpu/exact.h"
#undef X

const struct rows ROWS(rows) = {
    .rmsnorm_fwd = rmsnorm_fwd,
    .rmsnorm_bwd = rmsnorm_bwd,
    .rope_fwd = rope_fwd,
    .rope_bwd = rope_bwd,
    .col_sum = col_sum,
    .swiglu_fwd = swiglu_fwd,
    .swiglu_bwd = swiglu_bwd,
    .ce_stats = ce_stats,
    .ce_bwd = ce_bwd,
    .softmax = softmax,
    .softmax_bwd = softmax_bwd,
    .embed_row = ROWS(embed_row),
    .adamw = ROWS(adamw),
    .sq_sum = ROWS(sq_sum),
    .reduce = ROWS(reduce),
    .convert = ROWS(convert),
    .random_normal = ROWS(random_normal),
};
