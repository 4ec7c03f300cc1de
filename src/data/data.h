/* data: where samples come from, and which rank takes which.
 *
 * Sample i is tokens [i*T, (i+1)*T) of the source. Step s of a global batch G takes samples [s*G,
 * (s+1)*G) (or, shuffled, that many places of a seeded permutation that changes each epoch), split
 * over the ranks in order, as evenly as whole samples allow. Nothing depends on the number of ranks
 * but who reads what. */
#ifndef RAIA_DATA_H
#define RAIA_DATA_H

#include "base/base.h"

/* A kind of source: a row of the table in source.c. */
struct source_kind;

struct source {
    const struct source_kind *kind;
    uint64_t tokens; /* UINT64_MAX: no end */
    size_t vocab;    /* tokens must be below */
    uint64_t seed;
    void *impl;
    char *name;
};
/* SPEC: "random", a path ending in .bin (little-endian uint32), or a file or folder of text (bytes;
 * a folder's regular files in the order of their names, hidden ones left out). */
raia_status source_open(const char *spec, size_t vocab, uint64_t seed, struct source *out);
void source_close(struct source *source);
/* Sample INDEX of SEQ tokens into OUT. A token that VOCAB does not hold is RAIA_EFORMAT naming it
 * and its place. Allocates nothing. */
raia_status source_sample(const struct source *source, uint64_t index, size_t seq, uint32_t *out);

struct sampler {
    uint64_t samples; /* of the source; UINT64_MAX: no end */
    uint64_t global_batch;
    int rank, size;
    bool shuffle;
    uint64_t seed, epochs;
};
/* Checks that every rank gets a sample and that the source holds a step; errors say what is
 * missing. */
raia_status sampler_check(const struct sampler *sampler, const char *source_name);
/* Steps in all epochs; UINT64_MAX: no end. An epoch is samples / global_batch whole steps. */
uint64_t sampler_steps(const struct sampler *sampler);
/* Places [first, first + count) within the global batch that RANK takes. */
void sampler_share(const struct sampler *sampler, int rank, uint64_t *first, uint64_t *count);
/* The sample at PLACE (0 .. global_batch-1) of STEP. */
uint64_t sampler_at(const struct sampler *sampler, uint64_t step, uint64_t place);

#endif
