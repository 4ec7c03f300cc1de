/* scalar: single values of the short floating types, and random bits, inline for kernels. tensor.h
 * has the same as functions. */
#ifndef RAIA_TENSOR_SCALAR_H
#define RAIA_TENSOR_SCALAR_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}
static inline float f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline float bf16_load(uint16_t x)
{
    return f32_of_bits((uint32_t)x << 16);
}
/* Round to nearest even; a NaN stays a NaN (made quiet). */
static inline uint16_t bf16_round(float x)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
/* Rounds up in magnitude with the probability of the part cut off; `random` is 16 uniform bits.
 * Infinities and NaNs do not move. */
static inline uint16_t bf16_round_stochastic(float x, uint32_t random)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7f800000u) == 0x7f800000u)
        return bf16_round(x);
    return (uint16_t)((u + (random & 0xffffu)) >> 16);
}

static inline float f16_load(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, exponent = (x >> 10) & 31u, part = x & 1023u;
    if (exponent == 31)
        return f32_of_bits(sign | 0x7f800000u | part << 13 | (part != 0 ? 0x400000u : 0));
    if (exponent != 0)
        return f32_of_bits(sign | (exponent + 112) << 23 | part << 13);
    float tiny = (float)part * 0x1p-24f;
    return f32_of_bits(sign | f32_bits(tiny));
}
static inline uint16_t f16_round(float x)
{
    uint32_t u = f32_bits(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude <
        0x38800000u) { /* below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 */
        float aligned = f32_of_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (f32_bits(aligned) - f32_bits(0.5f)));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

/* ---- random bits: Philox 2x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), keyed by a 64-bit hash of seed and stream ---- */

enum { PHILOX_ROUNDS = 7 };
#define PHILOX_MULTIPLIER 0xd256d193u
#define PHILOX_WEYL 0x9e3779b9u

/* Steele, Lea, Flood: the finaliser of SplitMix64. */
static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static inline uint64_t random_key(uint64_t seed, uint64_t stream)
{
    return random_mix(random_mix(seed) ^ stream);
}
/* The high half of the key is Philox's, the low half moves the counter. */
static inline uint64_t random_draw(uint64_t key, uint64_t counter)
{
    uint32_t low = (uint32_t)counter, high = (uint32_t)(counter >> 32) ^ (uint32_t)key;
    uint32_t k = (uint32_t)(key >> 32);
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product = (uint64_t)low * PHILOX_MULTIPLIER;
        low = (uint32_t)(product >> 32) ^ k ^ high;
        high = (uint32_t)product;
        k += PHILOX_WEYL;
    }
    return (uint64_t)high << 32 | low;
}

#endif
