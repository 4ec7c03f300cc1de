#include "tensor/scalar.h"

#include "tensor/tensor.h"

float bf16_to_f32(uint16_t x)
{
    return bf16_load(x);
}

uint16_t bf16_from_f32(float x)
{
    return bf16_round(x);
}

float f16_to_f32(uint16_t x)
{
    return f16_load(x);
}

uint16_t f16_from_f32(float x)
{
    return f16_round(x);
}

uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return random_draw(random_key(seed, stream), counter);
}
