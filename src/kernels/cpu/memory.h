/* memory: a CPU device's buffers, the same for every table. */
#ifndef RAIA_KERNELS_MEMORY_H
#define RAIA_KERNELS_MEMORY_H

#include "tensor/tensor.h"

/* 64-byte aligned and zeroed; from MEMORY_HUGE bytes on aligned to 2 MiB and marked for huge pages.
 */
enum { MEMORY_HUGE = 4 << 20 };
raia_status memory_alloc(struct device *device, size_t bytes, void **out);
void memory_release(struct device *device, void *p, size_t bytes);

#endif
