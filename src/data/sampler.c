#include "data/data.h"
#include "tensor/tensor.h"

enum { ROUNDS = 6 }; /* of the permutation */

raia_status sampler_check(const struct sampler *s, const char *source_name)
{
    if (s->global_batch < (uint64_t)s->size)
        return fail(RAIA_EINVAL,
                    "a global batch of %llu samples leaves some of the %d ranks without one; "
                    "use at least %d samples or fewer workers",
                    (unsigned long long)s->global_batch, s->size, s->size);
    if (s->samples < s->global_batch)
        return fail(
            RAIA_EINVAL,
            "%s holds %llu whole samples, a step needs %llu: use more data, a smaller batch "
            "or a shorter sequence",
            source_name, (unsigned long long)s->samples, (unsigned long long)s->global_batch);
    return RAIA_OK;
}

static uint64_t steps_an_epoch(const struct sampler *s)
{
    return s->samples == UINT64_MAX ? UINT64_MAX : s->samples / s->global_batch;
}

uint64_t sampler_steps(const struct sampler *s)
{
    uint64_t steps = steps_an_epoch(s), epochs = s->epochs > 0 ? s->epochs : 1;
    return steps > UINT64_MAX / epochs ? UINT64_MAX : steps * epochs;
}

void sampler_share(const struct sampler *s, int rank, uint64_t *first, uint64_t *count)
{
    uint64_t each = s->global_batch / (uint64_t)s->size, more = s->global_batch % (uint64_t)s->size;
    uint64_t r = (uint64_t)rank;
    *first = r * each + (r < more ? r : more);
    *count = each + (r < more);
}

/* A seeded permutation of [0, n) that needs no list: a Feistel network over the next even power of
 * two, walked until it lands inside (cycle walking keeps it a permutation). */
static uint64_t permute(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t x)
{
    unsigned half = 1;
    while (half < 32 && ((uint64_t)1 << (2 * half)) < n)
        half++;
    uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^ (random_bits(seed, epoch * ROUNDS + round, right) & mask);
            left = right;
            right = next;
        }
        x = (left << half) | right;
    } while (x >= n);
    return x;
}

uint64_t sampler_at(const struct sampler *s, uint64_t step, uint64_t place)
{
    if (s->samples == UINT64_MAX)
        return step * s->global_batch + place;
    uint64_t each = steps_an_epoch(s), epoch = step / each;
    uint64_t at = (step % each) * s->global_batch + place;
    return s->shuffle ? permute(s->samples, s->seed, epoch, at) : at;
}
