#include "kernels/cpu/reference.h"

#include "base/base.h"
#include "kernels/cpu/memory.h"

#include <stdlib.h>
#include <string.h>

static raia_status reference_zero(struct device *device, void *p, size_t bytes)
{
    if (!device->planning && bytes > 0)
        memset(p, 0, bytes);
    return RAIA_OK;
}

static raia_status reference_copy(struct device *device, void *dst, const void *src, size_t bytes)
{
    if (!device->planning && bytes > 0)
        memcpy(dst, src, bytes);
    return RAIA_OK;
}

static raia_status reference_plan_end(struct device *device)
{
    (void)device;
    return RAIA_OK;
}

static void reference_close(struct device *device)
{
    free(device);
}

static const struct ops reference_ops = {
    .name = "reference",
#define X(op) .op = reference_##op,
    OPS_MAP(X)
#undef X
        .zero = reference_zero,
    .copy = reference_copy,
    .alloc = memory_alloc,
    .release = memory_release,
    .plan_end = reference_plan_end,
    .close = reference_close,
};

raia_status reference_open(struct device **out)
{
    struct device *device;
    RAIA_TRY(MEM_NEW(&device, 1));
    device->ops = &reference_ops;
    device->threads = 1;
    *out = device;
    return RAIA_OK;
}
