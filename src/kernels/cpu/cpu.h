/* What the files of the fast tables share. The operations (fast*.c) split their work over the
 * threads of the pool; what a thread does on its rows is a `struct rows` function, of which there
 * is one set for each instruction set (rows.c and exact.c, compiled once for each). */
#ifndef RAIA_KERNELS_CPU_H
#define RAIA_KERNELS_CPU_H

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/pool.h"
#include "tensor/tensor.h"

/* A block of query rows of one head: scores [rows, cols] f32, of which row i may see keys
 * 0 .. first + i. */
struct score_block {
    float *scores;
    void *p; /* probabilities, T, [rows, cols] */
    float *lse;
    size_t rows, cols, first;
    float scale;
    raia_dtype dtype;
};
/* The backward of it: ds = p * (dp - delta) * scale, in T over P's memory of its own. */
struct score_grad {
    struct score_block block; /* scores in, p out */
    const float *dp;
    void *ds;
    const void *out, *dout; /* rows of T, STRIDE apart; delta = sum(out * dout) */
    size_t stride, head_dim;
};

/* Each works on rows (or elements) [from, to). PARTIAL: f32 sums of this thread, overwritten. */
struct rows {
    void (*rmsnorm_fwd)(const struct rmsnorm_fwd *a, size_t from, size_t to);
    void (*rmsnorm_bwd)(const struct rmsnorm_bwd *a, size_t from, size_t to, float *partial);
    void (*rope_fwd)(const struct rope_fwd *a, size_t from, size_t to);
    void (*rope_bwd)(const struct rope_bwd *a, size_t from, size_t to, float *partial);
    void (*col_sum)(const struct col_sum *a, size_t from, size_t to, float *partial);
    void (*swiglu_fwd)(const struct swiglu_fwd *a, size_t from, size_t to);
    void (*swiglu_bwd)(const struct swiglu_bwd *a, size_t from, size_t to);
    void (*ce_stats)(const struct ce_stats *a, size_t from, size_t to);
    void (*ce_bwd)(const struct ce_bwd *a, size_t from, size_t to);
    void (*embed_row)(const struct embed_bwd *a, const uint64_t *keys, size_t count, float *sum);
    void (*softmax)(const struct score_block *b);
    void (*softmax_bwd)(const struct score_grad *g);
    void (*adamw)(const struct adamw *a, const struct adamw_scalars *s, size_t from, size_t to);
    double (*sq_sum)(const struct sq_sum *a, size_t from, size_t to);
    void (*reduce)(const struct reduce *a, size_t from, size_t to);
    void (*convert)(const struct convert *a, size_t from, size_t to);
    void (*random_normal)(const struct random_normal *a, size_t from, size_t to);
};
extern const struct rows rows_generic;
#if defined(__x86_64__)
extern const struct rows rows_avx2, rows_avx512;
#endif

struct gemms; /* compiled products, by shape (gemm.c) */
struct cpu {
    struct device device; /* first */
    struct ops ops;
    const struct rows *rows;
    struct pool *pool;
    struct gemms *gemms;
    char *scratch; /* [threads] parts of scratch_bytes */
    size_t scratch_bytes;
    uint64_t *keys; /* of embed_bwd */
    size_t key_count;
};
static inline struct cpu *cpu_of(struct device *device)
{
    return (struct cpu *)device;
}
/* Makes each thread's scratch at least BYTES; not while tasks run. */
raia_status cpu_scratch(struct cpu *cpu, size_t bytes);
static inline void *cpu_scratch_of(const struct cpu *cpu, int thread)
{
    return cpu->scratch + cpu->scratch_bytes * (size_t)thread;
}

raia_status gemms_open(struct gemms **out, int threads);
void gemms_close(struct gemms *gemms);
/* Makes the product of A's shape ready for any thread; its pointers are not looked at. */
raia_status gemm_plan(struct gemms *gemms, const struct gemm *a);
/* Runs it on the calling thread, number THREAD of the pool. It must have been planned. */
raia_status gemm_run(struct gemms *gemms, int thread, const struct gemm *a);

/* The table's functions, by file. */
#define X(op) raia_status fast_##op(struct device *device, const struct op *a);
OPS_MAP(X)
#undef X

/* Opens a device of the fast table with ROWS. */
raia_status fast_open(struct device **out, const char *name, const struct rows *rows, int threads);

#endif
