/* The CPU's tables, and which of them this machine can run. */
#include "tensor/backend.h"

#include "base/base.h"
#include "kernels/cpu/reference.h"

#include <string.h>

static const char *const *cpu_tables(void)
{
    static const char *const names[] = { "reference", NULL };
    return names;
}

static raia_status cpu_open(struct device **out, const char *table, int threads)
{
    (void)threads;
    if (table == NULL)
        table = env_get("RAIA_CPU", cpu_tables()[0]);
    if (strcmp(table, "reference") == 0)
        return reference_open(out);
    return fail(RAIA_EUNSUPPORTED, "no CPU table \"%s\" on this machine", table);
}

const struct backend backend_cpu = { .name = "cpu", .tables = cpu_tables, .open = cpu_open };

void tensor_reduce(const struct reduce *args)
{
    struct device device = { 0 };
    (void)reference_reduce(&device, args);
}
