/* normal: a standard normal value from 64 random bits by Box and Muller's method. Only operations
 * that IEEE 754 rounds exactly, none fused: vector code that does the same steps has the same bits.
 * Polynomials: Cephes' logf, sinf and cosf (S. Moshier). */
#ifndef RAIA_KERNELS_NORMAL_H
#define RAIA_KERNELS_NORMAL_H

#include "tensor/scalar.h"

#include <math.h>

/* X(coefficient), highest power first */
#define NORMAL_LOG_MAP(X)                                                                          \
    X(7.0376836292e-2f)                                                                            \
    X(-1.1514610310e-1f)                                                                           \
    X(1.1676998740e-1f)                                                                            \
    X(-1.2420140846e-1f)                                                                           \
    X(1.4249322787e-1f)                                                                            \
    X(-1.6668057665e-1f)                                                                           \
    X(2.0000714765e-1f)                                                                            \
    X(-2.4999993993e-1f)                                                                           \
    X(3.3333331174e-1f)
#define NORMAL_SIN_MAP(X) X(-1.9515295891e-4f) X(8.3321608736e-3f) X(-1.6666654611e-1f)
#define NORMAL_COS_MAP(X)                                                                          \
    X(2.443315711809948e-5f) X(-1.388731625493765e-3f) X(4.166664568298827e-2f)
#define NORMAL_LN2_HIGH 0.693359375f
#define NORMAL_LN2_LOW (-2.12194440e-4f)
#define NORMAL_SQRT_HALF 0.707106781186547524f
#define NORMAL_ANGLE (1.57079632679489662f * 0x1p-22f)

/* ln(x) for a positive normal x */
static inline float normal_log(float x)
{
    uint32_t bits = f32_bits(x);
    float exponent = (float)((int32_t)(bits >> 23) - 126);
    float part = f32_of_bits((bits & 0x7fffffu) | 0x3f000000u);
    if (part < NORMAL_SQRT_HALF) {
        exponent -= 1.0f;
        part += part;
    }
    part -= 1.0f;
    float square = part * part, sum = 0.0f;
#define X(c) sum = sum * part + c;
    NORMAL_LOG_MAP(X)
#undef X
    sum = sum * part * square;
    sum += exponent * NORMAL_LN2_LOW;
    sum -= 0.5f * square;
    return part + sum + exponent * NORMAL_LN2_HIGH;
}

/* cos(2 pi turns / 2^24) */
static inline float normal_cos(uint32_t turns)
{
    uint32_t quadrant = (turns + (1u << 21)) >> 22;
    float x = (float)((int32_t)turns - (int32_t)(quadrant << 22)) * NORMAL_ANGLE;
    float square = x * x, sine = 0.0f, cosine = 0.0f;
#define X(c) sine = sine * square + c;
    NORMAL_SIN_MAP(X)
#undef X
#define X(c) cosine = cosine * square + c;
    NORMAL_COS_MAP(X)
#undef X
    sine = sine * square * x + x;
    cosine = cosine * square * square - 0.5f * square + 1.0f;
    float value = (quadrant & 1u) != 0 ? sine : cosine;
    return ((quadrant + 1) & 2u) != 0 ? -value : value;
}

static inline float normal_value(uint64_t bits)
{
    float uniform = (float)(((uint32_t)bits >> 8) + 1u) * 0x1p-24f;
    return sqrtf(-2.0f * normal_log(uniform)) * normal_cos((uint32_t)(bits >> 40));
}

#endif
