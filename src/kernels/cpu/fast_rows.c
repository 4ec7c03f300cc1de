/* Operations that work row by row: split over the threads. */
#include "base/base.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"
#include "kernels/cpu/reference.h"

#include <stdlib.h>

struct call {
    struct cpu *cpu;
    const void *args;
    const struct adamw_scalars *scalars;
    double *sums; /* [threads] of sq_sum */
};

static void part_of(const struct call *c, size_t n, size_t grain, int thread, size_t *from,
                    size_t *to)
{
    pool_part(n, grain, thread, pool_threads(c->cpu->pool), from, to);
}

/* ---- operations whose rows do not meet: a part of COUNT, in grains, for each thread ---- */

#define ROW_OP(OP, COUNT, GRAIN)                                                                   \
    static void OP##_part(void *arg, int thread)                                                   \
    {                                                                                              \
        const struct call *c = arg;                                                                \
        const struct OP *a = c->args;                                                              \
        size_t from, to;                                                                           \
        part_of(c, (COUNT), (GRAIN), thread, &from, &to);                                          \
        if (to > from)                                                                             \
            c->cpu->rows->OP(a, from, to);                                                         \
    }                                                                                              \
    raia_status fast_##OP(struct device *device, const struct OP *a)                               \
    {                                                                                              \
        struct call c = { .cpu = cpu_of(device), .args = a };                                      \
        if (!device->planning)                                                                     \
            pool_run(c.cpu->pool, OP##_part, &c);                                                  \
        return RAIA_OK;                                                                            \
    }

ROW_OP(rmsnorm_fwd, a->rows, 1)
ROW_OP(rope_fwd, a->tokens, 1)
ROW_OP(swiglu_fwd, a->n, 1024)
ROW_OP(swiglu_bwd, a->n, 1024)
ROW_OP(ce_stats, a->rows, 1)
ROW_OP(ce_bwd, a->rows, 1)
ROW_OP(convert, a->count, 4096)
ROW_OP(random_normal, a->count, 4096)

/* ---- operations with a sum over the rows: each thread has its own, added in order ---- */

static raia_status run_partial(struct device *device, pool_task *task, struct call *c, size_t cols)
{
    RAIA_TRY(cpu_scratch(c->cpu, cols * sizeof(float)));
    if (!device->planning)
        pool_run(c->cpu->pool, task, c);
    return RAIA_OK;
}

static void add_partials(const struct cpu *cpu, size_t cols, raia_dtype dtype, void *out)
{
    for (size_t j = 0; j < cols; j++) {
        float sum = 0;
        for (int t = 0; t < pool_threads(cpu->pool); t++)
            sum += ((const float *)cpu_scratch_of(cpu, t))[j];
        element_put(out, dtype, j, sum);
    }
}

#define PARTIAL_OP(OP, COUNT, COLS, OUT)                                                           \
    static void OP##_part(void *arg, int thread)                                                   \
    {                                                                                              \
        const struct call *c = arg;                                                                \
        const struct OP *a = c->args;                                                              \
        size_t from, to;                                                                           \
        part_of(c, (COUNT), 1, thread, &from, &to);                                                \
        c->cpu->rows->OP(a, from, to, cpu_scratch_of(c->cpu, thread));                             \
    }                                                                                              \
    raia_status fast_##OP(struct device *device, const struct OP *a)                               \
    {                                                                                              \
        struct call c = { .cpu = cpu_of(device), .args = a };                                      \
        RAIA_TRY(run_partial(device, OP##_part, &c, (COLS)));                                      \
        if (!device->planning && (OUT) != NULL)                                                    \
            add_partials(c.cpu, (COLS), a->dtype, (OUT));                                          \
        return RAIA_OK;                                                                            \
    }

PARTIAL_OP(rmsnorm_bwd, a->rows, a->cols, a->dw)
PARTIAL_OP(col_sum, a->rows, a->cols, a->out)
PARTIAL_OP(rope_bwd, a->tokens, a->head_dim, a->norm_w != NULL ? a->dnorm_w : NULL)

/* ---- the optimizer ---- */

static void adamw_part(void *arg, int thread)
{
    const struct call *c = arg;
    const struct adamw *a = c->args;
    size_t from, to;
    part_of(c, a->count, 4096, thread, &from, &to);
    if (to > from)
        c->cpu->rows->adamw(a, c->scalars, from, to);
}

raia_status fast_adamw(struct device *device, const struct adamw *a)
{
    if (device->planning)
        return RAIA_OK;
    const struct adamw_scalars scalars = adamw_scalars(a);
    struct call c = { .cpu = cpu_of(device), .args = a, .scalars = &scalars };
    pool_run(c.cpu->pool, adamw_part, &c);
    return RAIA_OK;
}

static void sq_sum_part(void *arg, int thread)
{
    const struct call *c = arg;
    const struct sq_sum *a = c->args;
    size_t from, to;
    part_of(c, a->count, 4096, thread, &from, &to);
    *(double *)cpu_scratch_of(c->cpu, thread) = c->cpu->rows->sq_sum(a, from, to);
}

raia_status fast_sq_sum(struct device *device, const struct sq_sum *a)
{
    struct call c = { .cpu = cpu_of(device), .args = a };
    RAIA_TRY(run_partial(device, sq_sum_part, &c, 2));
    if (device->planning)
        return RAIA_OK;
    double sum = 0;
    for (int t = 0; t < pool_threads(c.cpu->pool); t++)
        sum += *(const double *)cpu_scratch_of(c.cpu, t);
    *a->out = sum;
    return RAIA_OK;
}

/* ---- reductions ---- */

static void reduce_part(void *arg, int thread)
{
    const struct call *c = arg;
    const struct reduce *a = c->args;
    size_t from, to;
    part_of(c, a->count, 4096, thread, &from, &to);
    if (to > from)
        c->cpu->rows->reduce(a, from, to);
}

static bool is_plain_sum(const struct reduce *a)
{
    bool plain = a->dtype == RAIA_F32 || a->dtype == RAIA_BF16;
    return plain && (a->op == RAIA_SUM || a->op == RAIA_AVG);
}

raia_status fast_reduce(struct device *device, const struct reduce *a)
{
    struct call c = { .cpu = cpu_of(device), .args = a };
    if (!is_plain_sum(a))
        return reference_reduce(device, a);
    if (!device->planning)
        pool_run(c.cpu->pool, reduce_part, &c);
    return RAIA_OK;
}

/* ---- vocabulary ---- */

static void embed_fwd_part(void *arg, int thread)
{
    const struct call *c = arg;
    struct embed_fwd a = *(const struct embed_fwd *)c->args;
    struct device none = { 0 };
    size_t from, to;
    part_of(c, a.count, 1, thread, &from, &to);
    a.y = (char *)a.y + from * a.cols * raia_dtype_size(a.dtype);
    a.tokens += from;
    a.count = to - from;
    (void)reference_embed_fwd(&none, &a); /* copies of rows */
}

raia_status fast_embed_fwd(struct device *device, const struct embed_fwd *a)
{
    struct call c = { .cpu = cpu_of(device), .args = a };
    if (!device->planning)
        pool_run(c.cpu->pool, embed_fwd_part, &c);
    return RAIA_OK;
}

raia_status fast_ce_loss(struct device *device, const struct ce_loss *a)
{
    return reference_ce_loss(device, a); /* one logarithm a row */
}

/* Heapsort: in place, with the same bound for any input. */
static void sink(uint64_t *keys, size_t root, size_t n)
{
    for (size_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && keys[child + 1] > keys[child])
            child++;
        if (keys[root] >= keys[child])
            return;
        uint64_t swapped = keys[root];
        keys[root] = keys[child];
        keys[child] = swapped;
    }
}

static void sort_keys(uint64_t *keys, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sink(keys, i, n);
    for (size_t end = n; end-- > 1;) {
        uint64_t largest = keys[0];
        keys[0] = keys[end];
        keys[end] = largest;
        sink(keys, 0, end);
    }
}

struct embed_call {
    struct cpu *cpu;
    const struct embed_bwd *a;
    size_t keys;
};

/* Rows are whole: a thread takes those that begin in its part of the keys. */
static void embed_bwd_part(void *arg, int thread)
{
    const struct embed_call *c = arg;
    const uint64_t *keys = c->cpu->keys;
    size_t from, to;
    pool_part(c->keys, 1, thread, pool_threads(c->cpu->pool), &from, &to);
    while (from > 0 && from < c->keys && keys[from] >> 32 == keys[from - 1] >> 32)
        from++;
    for (size_t i = from; i < to;) {
        size_t end = i + 1;
        while (end < c->keys && keys[end] >> 32 == keys[i] >> 32)
            end++;
        c->cpu->rows->embed_row(c->a, keys + i, end - i, cpu_scratch_of(c->cpu, thread));
        i = end;
    }
}

raia_status fast_embed_bwd(struct device *device, const struct embed_bwd *a)
{
    struct embed_call c = { .cpu = cpu_of(device), .a = a };
    RAIA_TRY(cpu_scratch(c.cpu, a->cols * sizeof(float)));
    if (a->count > c.cpu->key_count) {
        free(c.cpu->keys);
        c.cpu->key_count = 0;
        RAIA_TRY(MEM_NEW(&c.cpu->keys, a->count));
        c.cpu->key_count = a->count;
    }
    if (device->planning)
        return RAIA_OK;
    for (size_t i = 0; i < a->count; i++)
        if (a->tokens[i] >= a->row0 && a->tokens[i] - a->row0 < a->rows)
            c.cpu->keys[c.keys++] = (uint64_t)(a->tokens[i] - a->row0) << 32 | i;
    sort_keys(c.cpu->keys, c.keys);
    pool_run(c.cpu->pool, embed_bwd_part, &c);
    return RAIA_OK;
}
