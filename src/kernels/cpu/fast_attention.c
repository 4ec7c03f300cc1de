/* Attention in blocks of query rows: the scores of a block with all keys that it may see, softmax,
 * and the product with the values. A block's scores are all that is ever stored. Products are
 * oneDNN's; a task (a head's block, or a key-value head in the backward) runs on one thread. */
#include "base/base.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"

#include <stdatomic.h>
#include <string.h>

enum { BLOCK_ROWS = 128 };

struct call {
    struct cpu *cpu;
    const struct attention_fwd *f;
    const struct attention_bwd *b; /* NULL in the forward */
    _Atomic size_t next;
    size_t tasks;
    _Atomic int status;
};

/* One block of query rows of one head. */
struct block {
    size_t batch, head, group; /* group: key-value head */
    size_t first, rows, cols;  /* query rows [first, first + rows) see keys [0, cols) */
};

static size_t blocks_of(const struct attention_fwd *f)
{
    return (f->seq + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static struct block block_at(const struct attention_fwd *f, size_t batch, size_t head, size_t index)
{
    size_t first = index * BLOCK_ROWS;
    size_t rows = f->seq - first < BLOCK_ROWS ? f->seq - first : BLOCK_ROWS;
    return (struct block){ .batch = batch,
                           .head = head,
                           .group = head / (f->heads / f->kv_heads),
                           .first = first,
                           .rows = rows,
                           .cols = first + rows };
}

/* Address of (token of the sample, head) in an array; NULL while planning. */
static void *at(const struct attention_fwd *f, const void *array, size_t stride, size_t batch,
                size_t token, size_t head)
{
    if (array == NULL)
        return NULL;
    size_t element = (batch * f->seq + token) * stride + head * f->head_dim;
    return (char *)array + element * raia_dtype_size(f->dtype);
}

/* ---- a thread's scratch ---- */

struct room {
    float *scores, *dp; /* [BLOCK_ROWS, seq] */
    char *p, *ds;       /* [BLOCK_ROWS, seq] of T */
    float *dk, *dv;     /* [seq, head_dim] */
    size_t bytes;
};

static struct room room_in(const struct attention_fwd *f, char *base)
{
    size_t block = BLOCK_ROWS * f->seq, type = raia_dtype_size(f->dtype);
    size_t grads = f->seq * f->head_dim * sizeof(float);
    struct room r = { .bytes = 2 * block * (sizeof(float) + type) + 2 * grads };
    r.scores = (float *)base;
    r.dp = r.scores + block;
    r.p = (char *)(r.dp + block);
    r.ds = r.p + block * type;
    r.dk = (float *)(r.ds + block * type);
    r.dv = r.dk + f->seq * f->head_dim;
    return r;
}

/* ---- the products ---- */

static struct gemm scores_of(const struct attention_fwd *f, const struct block *k, const void *rows,
                             size_t row_stride, const void *keys, size_t key_stride, float *out)
{
    return (struct gemm){ .m = k->rows,
                          .n = k->cols,
                          .k = f->head_dim,
                          .a = at(f, rows, row_stride, k->batch, k->first, k->head),
                          .b = at(f, keys, key_stride, k->batch, 0, k->group),
                          .c = out,
                          .lda = row_stride,
                          .ldb = key_stride,
                          .ldc = k->cols,
                          .tb = true,
                          .dtype = f->dtype,
                          .c_dtype = RAIA_F32 };
}

/* OUT[rows, head_dim] = P[rows, cols] * VALUES[cols, head_dim] */
static struct gemm mixed_of(const struct attention_fwd *f, const struct block *k, const void *p,
                            const void *values, size_t value_stride, void *out, size_t out_stride)
{
    return (struct gemm){ .m = k->rows,
                          .n = f->head_dim,
                          .k = k->cols,
                          .a = p,
                          .b = at(f, values, value_stride, k->batch, 0, k->group),
                          .c = at(f, out, out_stride, k->batch, k->first, k->head),
                          .lda = k->cols,
                          .ldb = value_stride,
                          .ldc = out_stride,
                          .dtype = f->dtype,
                          .c_dtype = f->dtype };
}

/* SUM[cols, head_dim] += P[rows, cols]^T * ROWS[rows, head_dim] */
static struct gemm spread_of(const struct attention_fwd *f, const struct block *k, const void *p,
                             const void *rows, size_t row_stride, float *sum)
{
    return (struct gemm){ .m = k->cols,
                          .n = f->head_dim,
                          .k = k->rows,
                          .a = p,
                          .b = at(f, rows, row_stride, k->batch, k->first, k->head),
                          .c = sum,
                          .lda = k->cols,
                          .ldb = row_stride,
                          .ldc = f->head_dim,
                          .ta = true,
                          .accumulate = true,
                          .dtype = f->dtype,
                          .c_dtype = RAIA_F32 };
}

/* ---- forward ---- */

static raia_status forward_block(const struct call *c, int thread, const struct block *k)
{
    const struct attention_fwd *f = c->f;
    struct room r = room_in(f, cpu_scratch_of(c->cpu, thread));
    const struct gemm s = scores_of(f, k, f->q, f->q_stride, f->k, f->k_stride, r.scores);
    RAIA_TRY(gemm_run(c->cpu->gemms, thread, &s));
    const struct score_block b = { .scores = r.scores,
                                   .p = r.p,
                                   .lse =
                                       f->lse + (k->batch * f->heads + k->head) * f->seq + k->first,
                                   .rows = k->rows,
                                   .cols = k->cols,
                                   .first = k->first,
                                   .scale = 1.0f / sqrtf((float)f->head_dim),
                                   .dtype = f->dtype };
    c->cpu->rows->softmax(&b);
    const struct gemm o = mixed_of(f, k, r.p, f->v, f->v_stride, f->out, f->out_stride);
    return gemm_run(c->cpu->gemms, thread, &o);
}

static raia_status forward_task(const struct call *c, int thread, size_t task)
{
    size_t blocks = blocks_of(c->f), row = task / blocks;
    /* The longest blocks first: the threads end together. */
    const struct block k =
        block_at(c->f, row / c->f->heads, row % c->f->heads, blocks - 1 - task % blocks);
    return forward_block(c, thread, &k);
}

/* ---- backward ---- */

static raia_status backward_block(const struct call *c, int thread, const struct block *k)
{
    const struct attention_fwd *f = c->f;
    const struct attention_bwd *b = c->b;
    struct gemms *gemms = c->cpu->gemms;
    struct room r = room_in(f, cpu_scratch_of(c->cpu, thread));
    const struct gemm s = scores_of(f, k, f->q, f->q_stride, f->k, f->k_stride, r.scores);
    const struct gemm dp = scores_of(f, k, b->dout, f->out_stride, f->v, f->v_stride, r.dp);
    RAIA_TRY(gemm_run(gemms, thread, &s));
    RAIA_TRY(gemm_run(gemms, thread, &dp));
    const struct score_grad g = {
        .block = { .scores = r.scores,
                   .p = r.p,
                   .lse = f->lse + (k->batch * f->heads + k->head) * f->seq + k->first,
                   .rows = k->rows,
                   .cols = k->cols,
                   .first = k->first,
                   .scale = 1.0f / sqrtf((float)f->head_dim),
                   .dtype = f->dtype },
        .dp = r.dp,
        .ds = r.ds,
        .out = at(f, f->out, f->out_stride, k->batch, k->first, k->head),
        .dout = at(f, b->dout, f->out_stride, k->batch, k->first, k->head),
        .stride = f->out_stride,
        .head_dim = f->head_dim,
    };
    c->cpu->rows->softmax_bwd(&g);
    const struct gemm dq = mixed_of(f, k, r.ds, f->k, f->k_stride, b->dq, f->q_stride);
    const struct gemm dk = spread_of(f, k, r.ds, f->q, f->q_stride, r.dk);
    const struct gemm dv = spread_of(f, k, r.p, b->dout, f->out_stride, r.dv);
    RAIA_TRY(gemm_run(gemms, thread, &dq));
    RAIA_TRY(gemm_run(gemms, thread, &dk));
    return gemm_run(gemms, thread, &dv);
}

static void store_sum(const struct call *c, size_t batch, size_t group, const float *sum, void *out,
                      size_t stride)
{
    const struct attention_fwd *f = c->f;
    for (size_t t = 0; t < f->seq; t++) {
        const struct convert row = { .src = sum + t * f->head_dim,
                                     .dst = at(f, out, stride, batch, t, group),
                                     .count = f->head_dim,
                                     .src_dtype = RAIA_F32,
                                     .dst_dtype = f->dtype };
        c->cpu->rows->convert(&row, 0, f->head_dim);
    }
}

/* All query heads of one key-value head: their gradients of keys and values meet in this thread. */
static raia_status backward_task(const struct call *c, int thread, size_t task)
{
    const struct attention_fwd *f = c->f;
    size_t batch = task / f->kv_heads, group = task % f->kv_heads, share = f->heads / f->kv_heads;
    struct room r = room_in(f, cpu_scratch_of(c->cpu, thread));
    memset(r.dk, 0, f->seq * f->head_dim * sizeof(float));
    memset(r.dv, 0, f->seq * f->head_dim * sizeof(float));
    for (size_t head = group * share; head < (group + 1) * share; head++)
        for (size_t i = 0; i < blocks_of(f); i++) {
            const struct block k = block_at(f, batch, head, i);
            RAIA_TRY(backward_block(c, thread, &k));
        }
    store_sum(c, batch, group, r.dk, c->b->dk, f->k_stride);
    store_sum(c, batch, group, r.dv, c->b->dv, f->v_stride);
    return RAIA_OK;
}

/* ---- running ---- */

static void work(void *arg, int thread)
{
    struct call *c = arg;
    for (size_t task; (task = atomic_fetch_add(&c->next, 1)) < c->tasks;) {
        raia_status status =
            c->b != NULL ? backward_task(c, thread, task) : forward_task(c, thread, task);
        if (status != RAIA_OK)
            atomic_store(&c->status, (int)status);
    }
}

static raia_status run(struct call *c)
{
    pool_run(c->cpu->pool, work, c);
    raia_status status = (raia_status)atomic_load(&c->status);
    return status == RAIA_OK ? RAIA_OK : fail(status, "attention's products failed");
}

raia_status fast_attention_fwd(struct device *device, const struct attention_fwd *f)
{
    struct call c = { .cpu = cpu_of(device), .f = f };
    c.tasks = f->batch * f->heads * blocks_of(f);
    RAIA_TRY(cpu_scratch(c.cpu, room_in(f, NULL).bytes));
    for (size_t i = 0; i < blocks_of(f); i++) {
        const struct block k = block_at(f, 0, 0, i);
        const struct gemm s = scores_of(f, &k, NULL, f->q_stride, NULL, f->k_stride, NULL);
        const struct gemm o = mixed_of(f, &k, NULL, NULL, f->v_stride, NULL, f->out_stride);
        RAIA_TRY(gemm_plan(c.cpu->gemms, &s));
        RAIA_TRY(gemm_plan(c.cpu->gemms, &o));
    }
    return device->planning ? RAIA_OK : run(&c);
}

raia_status fast_attention_bwd(struct device *device, const struct attention_bwd *b)
{
    const struct attention_fwd *f = &b->fwd;
    struct call c = { .cpu = cpu_of(device), .f = f, .b = b };
    c.tasks = f->batch * f->kv_heads;
    RAIA_TRY(cpu_scratch(c.cpu, room_in(f, NULL).bytes));
    for (size_t i = 0; i < blocks_of(f); i++) {
        const struct block k = block_at(f, 0, 0, i);
        const struct gemm each[] = {
            scores_of(f, &k, NULL, f->q_stride, NULL, f->k_stride, NULL),
            scores_of(f, &k, NULL, f->out_stride, NULL, f->v_stride, NULL),
            mixed_of(f, &k, NULL, NULL, f->k_stride, NULL, f->q_stride),
            spread_of(f, &k, NULL, NULL, f->q_stride, NULL),
            spread_of(f, &k, NULL, NULL, f->out_stride, NULL),
        };
        for (size_t j = 0; j < sizeof each / sizeof each[0]; j++)
            RAIA_TRY(gemm_plan(c.cpu->gemms, &each[j]));
    }
    return device->planning ? RAIA_OK : run(&c);
}
