/* The optimizer, reductions, conversions, random values. */
#include "base/base.h"
#include "kernels/cpu/adamw.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/normal.h"
#include "kernels/cpu/reference.h"

static void put_rounded(void *array, raia_dtype dtype, size_t i, float x, bool stochastic,
                        uint64_t bits)
{
    if (stochastic && dtype == RAIA_BF16)
        ((uint16_t *)array)[i] = bf16_round_stochastic(x, (uint32_t)bits & 0xffffu);
    else
        element_put(array, dtype, i, x);
}

raia_status reference_adamw(struct device *device, const struct adamw *a)
{
    if (device->planning)
        return RAIA_OK;
    struct adamw_scalars scalars = adamw_scalars(a);
    for (size_t i = 0; i < a->count; i++) {
        uint64_t bits = a->stochastic ? random_draw(scalars.key, a->element0 + i) : 0;
        struct adamw_element e = {
            .param = a->master != NULL ? a->master[i] : element_get(a->param, a->param_dtype, i),
            .m = element_get(a->m, a->state_dtype, i),
            .v = element_get(a->v, a->state_dtype, i),
        };
        adamw_step(&scalars, &e, element_get(a->grad, a->grad_dtype, i));
        if (a->master != NULL)
            a->master[i] = e.param;
        put_rounded(a->param, a->param_dtype, i, e.param, a->stochastic && a->master == NULL,
                    bits >> ADAMW_SHIFT_PARAM);
        put_rounded(a->m, a->state_dtype, i, e.m, a->stochastic, bits >> ADAMW_SHIFT_M);
        put_rounded(a->v, a->state_dtype, i, e.v, a->stochastic, bits >> ADAMW_SHIFT_V);
    }
    return RAIA_OK;
}

raia_status reference_sq_sum(struct device *device, const struct sq_sum *a)
{
    if (device->planning)
        return RAIA_OK;
    double sum = 0.0;
    for (size_t i = 0; i < a->count; i++) {
        double x = element_get(a->x, a->dtype, i);
        sum += x * x;
    }
    *a->out = sum;
    return RAIA_OK;
}

static float reduce_float(const struct reduce *a, size_t i)
{
    float value = element_get(a->sources[0], a->dtype, i);
    for (int s = 1; s < a->n; s++) {
        float x = element_get(a->sources[s], a->dtype, i);
        if (a->op == RAIA_MAX)
            value = x > value ? x : value;
        else if (a->op == RAIA_MIN)
            value = x < value ? x : value;
        else
            value += x;
    }
    if (a->op == RAIA_AVG)
        value /= (float)(a->divisor != 0 ? a->divisor : a->n);
    return value;
}

static int64_t integer_get(const void *array, raia_dtype dtype, size_t i)
{
    switch (dtype) {
    case RAIA_I32:
        return ((const int32_t *)array)[i];
    case RAIA_U32:
        return ((const uint32_t *)array)[i];
    case RAIA_U8:
        return ((const uint8_t *)array)[i];
    default:
        return ((const int64_t *)array)[i];
    }
}

static void integer_put(void *array, raia_dtype dtype, size_t i, int64_t x)
{
    if (dtype == RAIA_I32)
        ((int32_t *)array)[i] = (int32_t)x;
    else if (dtype == RAIA_U32)
        ((uint32_t *)array)[i] = (uint32_t)x;
    else if (dtype == RAIA_U8)
        ((uint8_t *)array)[i] = (uint8_t)x;
    else
        ((int64_t *)array)[i] = x;
}

/* Sums wrap; an average is truncated towards zero. */
static int64_t reduce_integer(const struct reduce *a, size_t i)
{
    int64_t value = integer_get(a->sources[0], a->dtype, i);
    for (int s = 1; s < a->n; s++) {
        int64_t x = integer_get(a->sources[s], a->dtype, i);
        if (a->op == RAIA_MAX)
            value = x > value ? x : value;
        else if (a->op == RAIA_MIN)
            value = x < value ? x : value;
        else
            value = (int64_t)((uint64_t)value + (uint64_t)x);
    }
    if (a->op == RAIA_AVG)
        value /= a->divisor != 0 ? a->divisor : a->n;
    return value;
}

raia_status reference_reduce(struct device *device, const struct reduce *a)
{
    if (device->planning)
        return RAIA_OK;
    bool is_float = a->dtype == RAIA_F32 || a->dtype == RAIA_BF16 || a->dtype == RAIA_F16;
    for (size_t i = 0; i < a->count; i++)
        if (is_float)
            element_put(a->dst, a->dst_dtype, i, reduce_float(a, i));
        else
            integer_put(a->dst, a->dtype, i, reduce_integer(a, i));
    return RAIA_OK;
}

raia_status reference_convert(struct device *device, const struct convert *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t i = 0; i < a->count; i++)
        element_put(a->dst, a->dst_dtype, i, element_get(a->src, a->src_dtype, i));
    return RAIA_OK;
}

raia_status reference_random_normal(struct device *device, const struct random_normal *a)
{
    if (device->planning)
        return RAIA_OK;
    uint64_t key = random_key(a->seed, a->tensor);
    for (size_t i = 0; i < a->count; i++)
        element_put(a->out, a->dtype, i, normal_value(random_draw(key, a->element0 + i)) * a->std);
    return RAIA_OK;
}
