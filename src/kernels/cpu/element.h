/* element: one element of an array in any floating dtype, for the reference and for edges. */
#ifndef RAIA_KERNELS_ELEMENT_H
#define RAIA_KERNELS_ELEMENT_H

#include "tensor/scalar.h"

#include <raia/types.h>

#include <stddef.h>

static inline float element_get(const void *array, raia_dtype dtype, size_t i)
{
    if (dtype == RAIA_F32)
        return ((const float *)array)[i];
    uint16_t x = ((const uint16_t *)array)[i];
    return dtype == RAIA_BF16 ? bf16_load(x) : f16_load(x);
}

static inline void element_put(void *array, raia_dtype dtype, size_t i, float x)
{
    if (dtype == RAIA_F32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] = dtype == RAIA_BF16 ? bf16_round(x) : f16_round(x);
}

/* X as it would be after a store and a load. */
static inline float element_round(raia_dtype dtype, float x)
{
    if (dtype == RAIA_F32)
        return x;
    return dtype == RAIA_BF16 ? bf16_load(bf16_round(x)) : f16_load(f16_round(x));
}

/* The address of element I. */
static inline const void *element_at(const void *array, raia_dtype dtype, size_t i)
{
    return (const char *)array + i * (dtype == RAIA_F32 ? 4 : 2);
}
static inline void *element_at_mut(void *array, raia_dtype dtype, size_t i)
{
    return (char *)array + i * (dtype == RAIA_F32 ? 4 : 2);
}

#endif
