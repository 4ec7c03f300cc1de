/* The fast table: a device with threads, compiled products and row kernels of its instruction set.
 */
#include "base/base.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/memory.h"

#include <stdlib.h>
#include <string.h>

raia_status cpu_scratch(struct cpu *cpu, size_t bytes)
{
    size_t each = (bytes + 4095) / 4096 * 4096;
    if (each <= cpu->scratch_bytes)
        return RAIA_OK;
    size_t threads = (size_t)pool_threads(cpu->pool);
    void *more;
    RAIA_TRY(memory_alloc(&cpu->device, each * threads, &more));
    memory_release(&cpu->device, cpu->scratch, cpu->scratch_bytes * threads);
    cpu->scratch = more;
    cpu->scratch_bytes = each;
    return RAIA_OK;
}

/* ---- memory: large copies are shared by the threads ---- */

struct move {
    struct cpu *cpu;
    char *dst;
    const char *src; /* NULL: zeros */
    size_t bytes;
};

static void move_part(void *arg, int thread)
{
    const struct move *m = arg;
    size_t from, to;
    pool_part(m->bytes, 65536, thread, pool_threads(m->cpu->pool), &from, &to);
    if (to > from && m->src != NULL)
        memcpy(m->dst + from, m->src + from, to - from);
    else if (to > from)
        memset(m->dst + from, 0, to - from);
}

static raia_status move_bytes(struct device *device, void *dst, const void *src, size_t bytes)
{
    struct move m = { cpu_of(device), dst, src, bytes };
    if (!device->planning && bytes > 0)
        pool_run(m.cpu->pool, move_part, &m);
    return RAIA_OK;
}

static raia_status fast_zero(struct device *device, void *p, size_t bytes)
{
    return move_bytes(device, p, NULL, bytes);
}

static raia_status fast_copy(struct device *device, void *dst, const void *src, size_t bytes)
{
    return move_bytes(device, dst, src, bytes);
}

/* ---- life ---- */

static raia_status fast_plan_end(struct device *device)
{
    (void)device;
    return RAIA_OK;
}

static void fast_close(struct device *device)
{
    struct cpu *cpu = cpu_of(device);
    if (cpu->scratch != NULL)
        memory_release(device, cpu->scratch, cpu->scratch_bytes * (size_t)pool_threads(cpu->pool));
    gemms_close(cpu->gemms);
    pool_close(cpu->pool);
    free(cpu->keys);
    free(cpu);
}

static const struct ops fast_ops = {
#define X(op) .op = fast_##op,
    OPS_MAP(X)
#undef X
        .zero = fast_zero,
    .copy = fast_copy,
    .alloc = memory_alloc,
    .release = memory_release,
    .plan_end = fast_plan_end,
    .close = fast_close,
};

raia_status fast_open(struct device **out, const char *name, const struct rows *rows, int threads)
{
    struct cpu *cpu;
    RAIA_TRY(MEM_NEW(&cpu, 1));
    cpu->ops = fast_ops;
    cpu->ops.name = name;
    cpu->rows = rows;
    cpu->device.ops = &cpu->ops;
    cpu->device.threads = threads;
    raia_status status = pool_open(&cpu->pool, threads);
    if (status == RAIA_OK)
        status = gemms_open(&cpu->gemms, threads);
    if (status != RAIA_OK) {
        fast_close(&cpu->device);
        return status;
    }
    *out = &cpu->device;
    return RAIA_OK;
}
