/* wire_lib: libfabric, found when the program runs.
 *
 * A program that trains on one node never loads it, and on an EFA node Amazon's build is taken
 * before the distribution's. Only a few of libfabric's functions are symbols; the rest of its API
 * is inline over tables of the objects that these return. */
#ifndef RAIA_FABRIC_WIRE_LIB_H
#define RAIA_FABRIC_WIRE_LIB_H

#include "base/base.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

struct wire_lib {
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
                   const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int error);
    uint32_t (*version)(void);
    char path[512]; /* of the file that was loaded */
};

/* Loads the library once a process and never unloads it. RAIA_LIBFABRIC names a file to load
 * instead. */
raia_status wire_lib_load(const struct wire_lib **out);

#endif
