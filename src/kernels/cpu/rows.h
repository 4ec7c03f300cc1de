/* rows: what the files compiled once for each instruction set share. ROWS_ISA is that set's name.
 */
#ifndef RAIA_KERNELS_ROWS_H
#define RAIA_KERNELS_ROWS_H

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"

#define ROWS_JOIN2(a, b) a##_##b
#define ROWS_JOIN(a, b) ROWS_JOIN2(a, b)
#define ROWS(name) ROWS_JOIN(name, ROWS_ISA)

/* A loop over elements that touch nothing but their own index: it vectorises though the compiler
 * cannot see that the arrays are the same or apart. */
#define EACH _Pragma("GCC ivdep") for

/* Bodies are written once, with the type an argument that is a constant after inlining. */
#define INLINE static inline __attribute__((always_inline))
#define BY_TYPE(dtype, call)                                                                       \
    do {                                                                                           \
        if ((dtype) == RAIA_F32) {                                                                 \
            const raia_dtype T = RAIA_F32;                                                         \
            call;                                                                                  \
        } else {                                                                                   \
            const raia_dtype T = RAIA_BF16;                                                        \
            call;                                                                                  \
        }                                                                                          \
    } while (0)

INLINE float get(const void *array, raia_dtype dtype, size_t i)
{
    return dtype == RAIA_F32 ? ((const float *)array)[i]
                             : f32_of_bits((uint32_t)((const uint16_t *)array)[i] << 16);
}

INLINE void put(void *array, raia_dtype dtype, size_t i, float x)
{
    if (dtype == RAIA_F32)
        ((float *)array)[i] = x;
    else
        ((uint16_t *)array)[i] = bf16_round(x);
}

INLINE float rounded(raia_dtype dtype, float x)
{
    return dtype == RAIA_F32 ? x : f32_of_bits((uint32_t)bf16_round(x) << 16);
}

/* e^x within 2 units in the last place; 0 below the smallest normal, infinity above the largest.
 * Cephes' expf (S. Moshier). */
INLINE float exp_of(float x)
{
    float z = x < -87.0f ? -87.0f : x;
    z = z > 88.7f ? 88.7f : z;
    /* Adding 1.5 * 2^23 rounds to an integer, which then lies in the low bits. */
    int32_t k = (int32_t)f32_bits(z * 1.44269504088896341f + 12582912.0f) - 0x4b400000;
    float n = (float)k; /* not by subtraction: sums may be reordered here */
    float r = z - n * 0.693359375f;
    r += n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    p = p * f32_of_bits((uint32_t)(k + 126) << 23) * 2.0f;
    p = x < -87.0f ? 0.0f : p;
    return x > 88.7f ? __builtin_inff() : p;
}

#endif
