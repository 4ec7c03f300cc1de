/* Row kernels whose bits are those of the reference: no sum is reordered, nothing is fused.
 * Compiled once for each instruction set. */
#include "kernels/cpu/normal.h"
#include "kernels/cpu/rows.h"

#define X(type, name, args) type ROWS(name) args;
#include "kernels/cpu/exact.h"
#undef X

enum { BLOCK = 512 };

/* ---- conversions ---- */

INLINE void load_block(float *out, const void *x, raia_dtype dtype, size_t at, size_t n)
{
    if (dtype == RAIA_F16)
        for (size_t i = 0; i < n; i++)
            out[i] = f16_load(((const uint16_t *)x)[at + i]);
    else
        BY_TYPE(dtype, EACH(size_t i = 0; i < n; i++) out[i] = get(x, T, at + i));
}

INLINE void store_block(void *y, raia_dtype dtype, size_t at, const float *in, size_t n)
{
    if (dtype == RAIA_F16)
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)y)[at + i] = f16_round(in[i]);
    else
        BY_TYPE(dtype, EACH(size_t i = 0; i < n; i++) put(y, T, at + i, in[i]));
}

void ROWS(convert)(const struct convert *a, size_t from, size_t to)
{
    float block[BLOCK];
    for (size_t at = from; at < to; at += BLOCK) {
        size_t n = to - at < BLOCK ? to - at : BLOCK;
        load_block(block, a->src, a->src_dtype, at, n);
        store_block(a->dst, a->dst_dtype, at, block, n);
    }
}

/* ---- reductions ---- */

INLINE void add_block(float *sum, const void *x, raia_dtype dtype, size_t at, size_t n)
{
    BY_TYPE(dtype, EACH(size_t i = 0; i < n; i++) sum[i] += get(x, T, at + i));
}

static void sum_block(const struct reduce *a, float *sum, size_t at, size_t n)
{
    load_block(sum, a->sources[0], a->dtype, at, n);
    for (int s = 1; s < a->n; s++)
        add_block(sum, a->sources[s], a->dtype, at, n);
    float divisor = (float)(a->divisor != 0 ? a->divisor : a->n);
    if (a->op == RAIA_AVG)
        EACH(size_t i = 0; i < n; i++)
    sum[i] /= divisor;
    store_block(a->dst, a->dst_dtype, at, sum, n);
}

void ROWS(reduce)(const struct reduce *a, size_t from, size_t to)
{
    float sum[BLOCK];
    for (size_t at = from; at < to; at += BLOCK)
        sum_block(a, sum, at, to - at < BLOCK ? to - at : BLOCK);
}

/* Eight sums, which are added in order at the end: wide, and the same on every instruction set. */
INLINE double sq_sum_t(const void *x, size_t from, size_t to, raia_dtype t)
{
    enum { LANES = 16 };
    double lane[LANES] = { 0 }, sum = 0;
    size_t i = from;
    for (; i + LANES <= to; i += LANES)
        EACH(size_t j = 0; j < LANES; j++)
        {
            double v = get(x, t, i + j);
            lane[j] += v * v;
        }
    for (size_t j = 0; i < to; i++, j++)
        lane[j] += (double)get(x, t, i) * get(x, t, i);
    for (size_t j = 0; j < LANES; j++)
        sum += lane[j];
    return sum;
}

double ROWS(sq_sum)(const struct sq_sum *a, size_t from, size_t to)
{
    return a->dtype == RAIA_F32 ? sq_sum_t(a->x, from, to, RAIA_F32)
                                : sq_sum_t(a->x, from, to, RAIA_BF16);
}

INLINE void embed_row_t(const struct embed_bwd *a, const uint64_t *keys, size_t count, float *sum,
                        raia_dtype t, raia_dtype out)
{
    size_t row = (keys[0] >> 32) * a->cols;
    EACH(size_t c = 0; c < a->cols; c++)
    sum[c] = get(a->dtable, out, row + c);
    for (size_t k = 0; k < count; k++) {
        size_t from = (uint32_t)keys[k] * a->cols;
        EACH(size_t c = 0; c < a->cols; c++)
        sum[c] += get(a->dy, t, from + c);
    }
    EACH(size_t c = 0; c < a->cols; c++)
    put(a->dtable, out, row + c, sum[c]);
}

void ROWS(embed_row)(const struct embed_bwd *a, const uint64_t *keys, size_t count, float *sum)
{
    if (a->dtype == RAIA_F32)
        embed_row_t(a, keys, count, sum, RAIA_F32, RAIA_F32);
    else if (a->out_dtype == RAIA_F32)
        embed_row_t(a, keys, count, sum, RAIA_BF16, RAIA_F32);
    else
        embed_row_t(a, keys, count, sum, RAIA_BF16, RAIA_BF16);
}

/* ---- the optimizer ---- */

INLINE void put_random(void *array, raia_dtype t, size_t i, float x, bool stochastic, uint64_t bits)
{
    if (!stochastic || t == RAIA_F32) {
        put(array, t, i, x);
        return;
    }
    uint32_t u = f32_bits(x), up = (u + ((uint32_t)bits & 0xffffu)) >> 16;
    ((uint16_t *)array)[i] = (u & 0x7f800000u) == 0x7f800000u ? bf16_round(x) : (uint16_t)up;
}

INLINE void adamw_t(const struct adamw *a, const struct adamw_scalars *sc, size_t from, size_t to,
                    raia_dtype param, raia_dtype state, raia_dtype grad, bool master,
                    bool stochastic)
{
    const struct adamw_scalars s = *sc;
    EACH(size_t i = from; i < to; i++)
    {
        uint64_t bits = stochastic ? random_draw(s.key, a->element0 + i) : 0;
        struct adamw_element e = { .param = master ? a->master[i] : get(a->param, param, i),
                                   .m = get(a->m, state, i),
                                   .v = get(a->v, state, i) };
        adamw_step(&s, &e, get(a->grad, grad, i));
        if (master)
            a->master[i] = e.param;
        put_random(a->param, param, i, e.param, stochastic && !master, bits >> ADAMW_SHIFT_PARAM);
        put_random(a->m, state, i, e.m, stochastic, bits >> ADAMW_SHIFT_M);
        put_random(a->v, state, i, e.v, stochastic, bits >> ADAMW_SHIFT_V);
    }
}

/* The three precisions have code of their own; any other mix goes the slow way. */
void ROWS(adamw)(const struct adamw *a, const struct adamw_scalars *s, size_t from, size_t to)
{
    raia_dtype p = a->param_dtype, m = a->state_dtype, g = a->grad_dtype;
    bool master = a->master != NULL;
    if (p == RAIA_F32 && m == RAIA_F32 && g == RAIA_F32 && !master)
        adamw_t(a, s, from, to, RAIA_F32, RAIA_F32, RAIA_F32, false, false);
    else if (p == RAIA_BF16 && m == RAIA_BF16 && g == RAIA_BF16 && !master && a->stochastic)
        adamw_t(a, s, from, to, RAIA_BF16, RAIA_BF16, RAIA_BF16, false, true);
    else if (p == RAIA_BF16 && m == RAIA_BF16 && g == RAIA_BF16 && !master)
        adamw_t(a, s, from, to, RAIA_BF16, RAIA_BF16, RAIA_BF16, false, false);
    else if (p == RAIA_BF16 && m == RAIA_F32 && g == RAIA_F32 && master)
        adamw_t(a, s, from, to, RAIA_BF16, RAIA_F32, RAIA_F32, true, false);
    else
        adamw_t(a, s, from, to, p, m, g, master, a->stochastic);
}

/* ---- random values ---- */

INLINE void random_t(const struct random_normal *a, size_t from, size_t to, raia_dtype t)
{
    uint64_t key = random_key(a->seed, a->tensor);
    EACH(size_t i = from; i < to; i++)
    put(a->out, t, i, normal_value(random_draw(key, a->element0 + i)) * a->std);
}

void ROWS(random_normal)(const struct random_normal *a, size_t from, size_t to)
{
    BY_TYPE(a->dtype, random_t(a, from, to, T));
}
