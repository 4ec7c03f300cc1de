/* A matrix product over the threads: each takes rows of C, or columns where those are more. */
#include "base/base.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/element.h"

#include <stdatomic.h>

enum { GRAIN = 32 };

struct call {
    struct cpu *cpu;
    const struct gemm *whole;
    _Atomic int status;
};

/* The part of A that THREAD computes; false: none. */
static bool part_of(const struct gemm *whole, int thread, int threads, struct gemm *out)
{
    size_t from, to, c_at;
    *out = *whole;
    if (whole->m >= whole->n) {
        pool_part(whole->m, GRAIN, thread, threads, &from, &to);
        out->m = to - from;
        out->a = element_at(whole->a, whole->dtype, whole->ta ? from : from * whole->lda);
        c_at = from * whole->ldc;
    } else {
        pool_part(whole->n, GRAIN, thread, threads, &from, &to);
        out->n = to - from;
        out->b = element_at(whole->b, whole->dtype, whole->tb ? from * whole->ldb : from);
        if (whole->bias != NULL)
            out->bias = element_at(whole->bias, whole->dtype, from);
        c_at = from;
    }
    out->c = element_at_mut(whole->c, whole->c_dtype, c_at);
    return to > from;
}

static void gemm_part(void *arg, int thread)
{
    struct call *c = arg;
    struct gemm part;
    if (!part_of(c->whole, thread, pool_threads(c->cpu->pool), &part))
        return;
    raia_status status = gemm_run(c->cpu->gemms, thread, &part);
    if (status != RAIA_OK)
        atomic_store(&c->status, (int)status);
}

raia_status fast_gemm(struct device *device, const struct gemm *a)
{
    struct call c = { .cpu = cpu_of(device), .whole = a };
    if (a->m == 0 || a->n == 0)
        return RAIA_OK;
    for (int t = 0; t < pool_threads(c.cpu->pool); t++) {
        struct gemm part;
        if (part_of(a, t, pool_threads(c.cpu->pool), &part))
            RAIA_TRY(gemm_plan(c.cpu->gemms, &part));
    }
    if (device->planning)
        return RAIA_OK;
    pool_run(c.cpu->pool, gemm_part, &c);
    raia_status status = (raia_status)atomic_load(&c.status);
    return status == RAIA_OK ? RAIA_OK
                             : fail(status, "product %zu x %zu x %zu failed", a->m, a->n, a->k);
}
