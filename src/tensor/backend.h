/* backend: what a family of kernels (src/kernels/NAME) offers to device_open. Kernels include
 * tensor's headers, never the other way round: the rows of the table in device.c are all that
 * tensor knows. */
#ifndef RAIA_TENSOR_BACKEND_H
#define RAIA_TENSOR_BACKEND_H

#include "tensor/tensor.h"

struct backend {
    const char *name; /* what stands before the colon in device_open's WHICH */
    /* Names of the tables that this machine can run, best first; NULL-terminated, static. */
    const char *const *(*tables)(void);
    /* TABLE NULL: the best. The device belongs to the caller and is closed by its ops->close. */
    raia_status (*open)(struct device **out, const char *table, int threads);
};

extern const struct backend backend_cpu;

#endif
