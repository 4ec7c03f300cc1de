/* tensor: devices and the table of operations that a device carries out.
 *
 * A device has one `struct ops`: a row of functions, one for each operation. The decoder, the
 * optimizer and the collectives call through it and never know which device they run on.
 * src/kernels/cpu fills one such table for each instruction set (and one of plain reference code);
 * a plug-in can bring another.
 *
 * Matrices are row-major. Every pointer is memory of the device. Outputs do not overlap inputs
 * unless the operation says so. Rows of activations are tokens. "T" is bf16 or f32, given by
 * `dtype`; statistics (rstd, lse, losses) are always f32. All sums are accumulated in f32 or wider.
 * Bits depend on shapes, on the table and on the number of threads, on nothing else.
 *
 * Planning. While device->planning is true an operation computes nothing and touches no operand
 * (its pointers may be NULL): it makes what it will need for this shape (compiled primitives,
 * scratch size). After device_plan_end() the same calls allocate nothing. A shape that was not
 * planned is made ready at its first use: correct, but it allocates. */
#ifndef RAIA_TENSOR_H
#define RAIA_TENSOR_H

#include <raia/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device;

/* C[m,n] = A[m,k] * B[k,n] (+ bias[n]) (+ C if accumulate). `ta`: A is stored [k,m]; `tb`: B is
 * stored [n,k]. lda, ldb, ldc are elements between stored rows. A and B have `dtype`; C has
 * `c_dtype` (f32, or bf16 when dtype is bf16); bias has `dtype`, may be NULL, only with accumulate
 * false. */
struct gemm {
    size_t m, n, k;
    const void *a, *b;
    void *c;
    const void *bias;
    size_t lda, ldb, ldc;
    bool ta, tb, accumulate;
    raia_dtype dtype, c_dtype;
};

/* out[cols] (T) = sum over rows of x[rows, cols] (T): a bias's gradient. */
struct col_sum {
    const void *x;
    void *out;
    size_t rows, cols;
    raia_dtype dtype;
};

/* s = x + add (written to `sum` when add is not NULL, else s = x); rstd[r] = 1/sqrt(mean(s²)+eps);
 * y = T(s*rstd) * w, rounded to T before the weight as transformers does. sum may equal x or add.
 */
struct rmsnorm_fwd {
    const void *x, *add, *w;
    void *sum, *y;
    float *rstd;
    size_t rows, cols;
    float eps;
    raia_dtype dtype;
};

/* dx = add + d(norm)/dx·dy (add may be NULL; dx may equal add or dy); dw[cols] (T) is written.
 * x is the normalised input s of the forward. */
struct rmsnorm_bwd {
    const void *dy, *x, *w, *add;
    const float *rstd;
    void *dx, *dw;
    size_t rows, cols;
    float eps;
    raia_dtype dtype;
};

/* Rotary embedding (half-split), with an optional RMS norm of each head before it (qwen3). x is
 * [tokens, heads, head_dim] with `stride` elements between tokens; positions are token % seq.
 * cos_sin is [seq, head_dim] f32: cos of the first half's angles, then sin of them.
 * y may equal x when norm_w is NULL. With norm_w: rstd[tokens, heads] is written, x must be kept
 * for backward. */
struct rope_fwd {
    const void *x, *norm_w;
    const float *cos_sin;
    void *y;
    float *rstd;
    size_t tokens, seq, heads, head_dim, stride, y_stride;
    float eps;
    raia_dtype dtype;
};
/* dx from dy (dx may equal dy when the strides are equal); dnorm_w[head_dim] (T) is written when
 * norm_w is given. */
struct rope_bwd {
    const void *dy, *x, *norm_w;
    const float *cos_sin, *rstd;
    void *dx, *dnorm_w;
    size_t tokens, seq, heads, head_dim, stride, dx_stride; /* stride: of dy and x */
    float eps;
    raia_dtype dtype;
};

/* Causal attention with grouped heads (query head g uses key head g / (heads/kv_heads)), scale
 * head_dim^-0.5. q, out: [batch*seq, heads, head_dim]; k, v: [batch*seq, kv_heads, head_dim], each
 * with its own stride between tokens. lse[batch, heads, seq] f32 (natural log). The score matrix is
 * never stored. */
struct attention_fwd {
    const void *q, *k, *v;
    void *out;
    float *lse;
    size_t batch, seq, heads, kv_heads, head_dim;
    size_t q_stride, k_stride, v_stride, out_stride;
    raia_dtype dtype;
};
/* dq, dk, dv are written, with the strides of q, k, v; dout has out's stride. */
struct attention_bwd {
    struct attention_fwd fwd;
    const void *dout;
    void *dq, *dk, *dv;
};

/* y = silu(gate) * up, elementwise over n; bwd writes dgate and dup (may equal gate and up). When
 * `y` is not NULL the backward also writes the forward's value again (for recompute). */
struct swiglu_fwd {
    const void *gate, *up;
    void *y;
    size_t n;
    raia_dtype dtype;
};
struct swiglu_bwd {
    const void *dy, *gate, *up;
    void *dgate, *dup, *y;
    size_t n;
    raia_dtype dtype;
};

/* y[i] = table[token[i]], rows of `cols`. Tokens are < rows of the table (checked by the caller).
 */
struct embed_fwd {
    const void *table;
    const uint32_t *tokens;
    void *y;
    size_t count, cols;
    raia_dtype dtype;
};
/* dtable[token[i] - row0] += dy[i] for the tokens in [row0, row0+rows), in order of i; accumulated
 * in f32 and rounded to `out_dtype` once a row. dtable is [rows, cols]. */
struct embed_bwd {
    const void *dy;
    const uint32_t *tokens;
    void *dtable;
    size_t count, cols, row0, rows;
    raia_dtype dtype, out_dtype;
};

/* Cross-entropy on a block of the vocabulary. logits[rows, ld] holds columns [col0, col0+cols) of
 * the whole row, in `dtype`. Running f32 statistics for each row: max, sum of exp(l - max), the
 * target's logit. target < 0: the row is ignored. `first` starts the statistics. */
struct ce_stats {
    const void *logits;
    const int32_t *targets;
    float *max, *sum, *target_logit;
    size_t rows, cols, ld, col0;
    bool first;
    raia_dtype dtype;
};
/* Loss per row (f32, 0 for ignored rows) = log(sum) + max - target_logit; lse = log(sum) + max. */
struct ce_loss {
    const float *max, *sum, *target_logit;
    const int32_t *targets;
    float *lse, *loss;
    size_t rows;
};
/* logits become (softmax - onehot(target)) * scale in place; ignored rows become 0. */
struct ce_bwd {
    void *logits;
    const int32_t *targets;
    const float *lse;
    size_t rows, cols, ld, col0;
    float scale;
    raia_dtype dtype;
};

/* AdamW as torch.optim.AdamW: p -= lr*wd*p; m = b1*m+(1-b1)g; v = b2*v+(1-b2)g²;
 * p -= lr/(1-b1^t) * m / (sqrt(v/(1-b2^t)) + eps), with g multiplied by *grad_scale first
 * (clipping; a device pointer so that no host wait is needed). Maths in f32. param is the working
 * copy in param_dtype; when `master` is not NULL it holds the f32 value and param is its rounding.
 * m and v have state_dtype. Stochastic rounding (bf16 targets) draws its bits from (seed, step,
 * tensor, element0 + i, which of param/m/v): the same for any sharding. */
struct adamw {
    void *param, *m, *v;
    float *master;
    const void *grad;
    size_t count;
    raia_dtype param_dtype, grad_dtype, state_dtype;
    double lr, beta1, beta2, eps, weight_decay; /* f64: 1 - beta2 loses digits in f32 */
    const float *grad_scale;
    uint64_t step; /* 1 for the first update */
    bool stochastic;
    uint64_t seed, tensor, element0;
};

/* *out (f64) = sum of x², in a fixed order. */
struct sq_sum {
    const void *x;
    double *out;
    size_t count;
    raia_dtype dtype;
};

/* dst = op over `sources` (fp32 accumulation in order 0..n-1, then one rounding), `count` elements.
 * dst may equal one source. AVG divides by `divisor` when it is not 0, else by n. dst_dtype may
 * differ from dtype for floats. */
struct reduce {
    const void *const *sources;
    int n;
    void *dst;
    size_t count;
    raia_dtype dtype, dst_dtype;
    raia_op op;
    int divisor;
};

/* dst[i] (dst_dtype) = src[i] (src_dtype): f32, bf16, f16 in any pair, round to nearest even. */
struct convert {
    const void *src;
    void *dst;
    size_t count;
    raia_dtype src_dtype, dst_dtype;
};

/* Normal values N(0, std²) from (seed, tensor, element0 + i): the same for any sharding. */
struct random_normal {
    void *out;
    size_t count;
    float std;
    uint64_t seed, tensor, element0;
    raia_dtype dtype;
};

/* X(operation): the table's columns. Adding one is: its struct above, a name here, a function in
 * each table. */
#define OPS_MAP(X)                                                                                 \
    X(gemm)                                                                                        \
    X(col_sum)                                                                                     \
    X(rmsnorm_fwd)                                                                                 \
    X(rmsnorm_bwd)                                                                                 \
    X(rope_fwd)                                                                                    \
    X(rope_bwd)                                                                                    \
    X(attention_fwd)                                                                               \
    X(attention_bwd)                                                                               \
    X(swiglu_fwd)                                                                                  \
    X(swiglu_bwd)                                                                                  \
    X(embed_fwd)                                                                                   \
    X(embed_bwd)                                                                                   \
    X(ce_stats)                                                                                    \
    X(ce_loss)                                                                                     \
    X(ce_bwd)                                                                                      \
    X(adamw)                                                                                       \
    X(sq_sum)                                                                                      \
    X(reduce)                                                                                      \
    X(convert)                                                                                     \
    X(random_normal)

struct ops {
    const char *name; /* "reference", "generic", "avx2", "avx512", "avx512-bf16" */
#define OPS_X(op) raia_status (*op)(struct device * device, const struct op *args);
    OPS_MAP(OPS_X)
#undef OPS_X
    raia_status (*zero)(struct device *device, void *p, size_t bytes);
    raia_status (*copy)(struct device *device, void *dst, const void *src, size_t bytes);
    raia_status (*alloc)(struct device *device, size_t bytes,
                         void **out); /* 64-byte aligned, zeroed */
    void (*release)(struct device *device, void *p, size_t bytes);
    raia_status (*plan_end)(struct device *device);
    void (*close)(struct device *device);
};

/* A device and its threads. Owned by who opened it; used by one thread at a time. */
struct device {
    const struct ops *ops;
    int threads;
    bool planning;
    void *impl; /* the table's own */
};

/* Opens "cpu" (best table for this machine), "cpu:NAME" (that table; RAIA_EUNSUPPORTED if the
 * machine lacks it) with THREADS threads (0: the cores this process may use). Helper threads sleep
 * on a futex when idle; they may spin briefly only when `threads` <= cores. RAIA_CPU=NAME in the
 * environment chooses the table for "cpu". */
raia_status device_open(struct device **out, const char *which, int threads);
void device_close(struct device *device);
raia_status device_plan_end(struct device *device);
/* Cores this process may run on (affinity and cgroup quota). */
int device_cores(void);

/* Names of the CPU tables this machine can run, best first; NULL-terminated. */
const char *const *device_cpu_tables(void);

/* The reduce kernel without a device, single-threaded, best table: for the collectives. */
void tensor_reduce(const struct reduce *args);

/* bf16 and f16 conversions of single values, for tests and scalars. */
float bf16_to_f32(uint16_t x);
uint16_t bf16_from_f32(float x);
float f16_to_f32(uint16_t x);
uint16_t f16_from_f32(float x);
/* The counter-based generator behind stochastic rounding and random_normal: 64 random bits for a
 * key and a counter. */
uint64_t random_bits(uint64_t seed, uint64_t stream, uint64_t counter);

#endif
