#include "kernels/cpu/memory.h"

#include "base/base.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

static raia_status huge_alloc(size_t bytes, void **out)
{
    size_t size = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, room = size + HUGE_PAGE;
    char *map = room < bytes
                    ? MAP_FAILED
                    : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return fail(RAIA_ENOMEM, "cannot map %zu bytes for a buffer of the device", bytes);
    size_t before = (size_t)(-(uintptr_t)map) % HUGE_PAGE;
    if (before > 0)
        munmap(map, before);
    munmap(map + before + size, HUGE_PAGE - before);
    madvise(map + before, size, MADV_HUGEPAGE); /* a wish: fails where the kernel has none */
    *out = map + before;
    return RAIA_OK;
}

raia_status memory_alloc(struct device *device, size_t bytes, void **out)
{
    (void)device;
    *out = NULL;
    if (bytes >= MEMORY_HUGE)
        return huge_alloc(bytes, out);
    size_t size = (bytes + 63) / 64 * 64;
    void *p = aligned_alloc(64, size > 0 ? size : 64);
    if (p == NULL)
        return fail(RAIA_ENOMEM, "cannot allocate %zu bytes for a buffer of the device", bytes);
    memset(p, 0, size);
    *out = p;
    return RAIA_OK;
}

void memory_release(struct device *device, void *p, size_t bytes)
{
    (void)device;
    if (bytes >= MEMORY_HUGE && p != NULL)
        munmap(p, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    else
        free(p);
}
