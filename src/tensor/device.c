#include "base/base.h"
#include "tensor/backend.h"

#include <string.h>

static const struct backend *const backends[] = { &backend_cpu };

raia_status device_open(struct device **out, const char *which, int threads)
{
    const char *colon = strchr(which, ':');
    size_t len = colon != NULL ? (size_t)(colon - which) : strlen(which);
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++)
        if (strlen(backends[i]->name) == len && memcmp(backends[i]->name, which, len) == 0)
            return backends[i]->open(out, colon != NULL ? colon + 1 : NULL, threads);
    return fail(RAIA_EUNSUPPORTED, "no device \"%s\" here: give cpu or cpu:TABLE", which);
}

void device_close(struct device *device)
{
    if (device != NULL)
        device->ops->close(device);
}

raia_status device_plan_end(struct device *device)
{
    device->planning = false;
    return device->ops->plan_end(device);
}

const char *const *device_cpu_tables(void)
{
    return backend_cpu.tables();
}
