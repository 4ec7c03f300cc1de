/* The CPU's tables, and which of them this machine can run. */
#include "tensor/backend.h"

#include "base/base.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/reference.h"

#include <pthread.h>
#include <string.h>

static const struct table {
    const char *name;
    const struct rows *rows; /* NULL: the reference */
} tables[] = {
#if defined(__x86_64__)
    { "avx512", &rows_avx512 },
    { "avx2", &rows_avx2 },
#endif
    { "generic", &rows_generic },
    { "reference", NULL },
};
enum { TABLES = sizeof tables / sizeof tables[0] };

static bool runs_here(const struct table *t)
{
#if defined(__x86_64__)
    if (t->rows == &rows_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (t->rows == &rows_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    (void)t;
    return true;
}

static const char *names[TABLES + 1];
static const struct rows *best;

static void look(void)
{
    int count = 0;
    for (int i = 0; i < TABLES; i++)
        if (runs_here(&tables[i])) {
            names[count++] = tables[i].name;
            if (best == NULL)
                best = tables[i].rows;
        }
}

static const char *const *cpu_tables(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return names;
}

static raia_status cpu_open(struct device **out, const char *table, int threads)
{
    if (threads <= 0)
        threads = device_cores();
    if (table == NULL)
        table = env_get("RAIA_CPU", cpu_tables()[0]);
    for (int i = 0; i < TABLES; i++) {
        if (strcmp(tables[i].name, table) != 0 || !runs_here(&tables[i]))
            continue;
        return tables[i].rows == NULL ? reference_open(out)
                                      : fast_open(out, tables[i].name, tables[i].rows, threads);
    }
    struct buf list = { 0 };
    for (const char *const *n = cpu_tables(); *n != NULL; n++)
        (void)buf_printf(&list, " %s", *n);
    raia_status status = fail(RAIA_EUNSUPPORTED, "no CPU table \"%s\" on this machine, which has%s",
                              table, list.data != NULL ? list.data : "");
    buf_release(&list);
    return status;
}

const struct backend backend_cpu = { .name = "cpu", .tables = cpu_tables, .open = cpu_open };

void tensor_reduce(const struct reduce *args)
{
    struct device device = { 0 };
    bool floats = args->dtype == RAIA_F32 || args->dtype == RAIA_BF16;
    bool fast =
        floats && args->dst_dtype != RAIA_F16 && (args->op == RAIA_SUM || args->op == RAIA_AVG);
    (void)cpu_tables();
    if (fast && best != NULL)
        best->reduce(args, 0, args->count);
    else
        (void)reference_reduce(&device, args);
}
