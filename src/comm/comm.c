/* The communicator: who takes part, and memory that ranks of a node share. */
#include "comm/comm_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { STAGE_BYTES = 4 << 20, ALIGN = 4096 };

const struct world *comm_world(const raia_comm *comm)
{
    return &comm->world;
}

uint64_t comm_bytes_out(const raia_comm *comm)
{
    return comm->bytes_out;
}

int raia_comm_rank(const raia_comm *comm)
{
    return comm->world.rank;
}

int raia_comm_size(const raia_comm *comm)
{
    return comm->world.size;
}

void raia_comm_timeout(raia_comm *comm, double seconds)
{
    comm->timeout_s = seconds;
}

raia_status comm_meet(raia_comm *comm)
{
    if (comm->node == NULL)
        return RAIA_OK;
    node_post(comm->node, COUNTER_PHASE, ++comm->phase);
    return node_wait_all(comm->node, COUNTER_PHASE, comm->phase);
}

raia_status raia_barrier(raia_comm *comm)
{
    return comm_meet(comm);
}

char *comm_part(const struct region *region, int local_rank)
{
    return region->base + region->stride * (size_t)local_rank;
}

static raia_status map_private(raia_comm *comm, size_t bytes, const char *what, void **out)
{
    if (comm->maps == COMM_REGIONS)
        return fail(RAIA_EBUG, "%s: more than %d shared mappings", what, COMM_REGIONS);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return fail(RAIA_ENOMEM, "%s: cannot map %zu bytes: %s", what, bytes, strerror(errno));
    comm->mapped[comm->maps] = p;
    comm->mapped_bytes[comm->maps++] = bytes;
    *out = p;
    return RAIA_OK;
}

raia_status comm_map_node(raia_comm *comm, size_t bytes, const char *what, void **out)
{
    if (bytes == 0)
        bytes = ALIGN;
    return comm->node != NULL ? node_map(comm->node, bytes, what, out)
                              : map_private(comm, bytes, what, out);
}

raia_status comm_map_ranks(raia_comm *comm, size_t bytes, const char *what, void **out)
{
    if (comm->regions == COMM_REGIONS)
        return fail(RAIA_EBUG, "%s: more than %d regions", what, COMM_REGIONS);
    struct region *r = &comm->region[comm->regions];
    void *base = NULL;
    r->bytes = bytes;
    r->stride = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    RAIA_TRY(comm_map_node(comm, r->stride * (size_t)comm->world.local_size, what, &base));
    r->base = base;
    comm->regions++;
    *out = comm_part(r, comm->world.local_rank);
    return RAIA_OK;
}

raia_status raia_comm_alloc(raia_comm *comm, size_t bytes, void **out)
{
    return comm_map_ranks(comm, bytes, "raia_comm_alloc", out);
}

static raia_status open_comm(raia_comm *comm)
{
    void *mine;
    RAIA_TRY(MEM_NEW(&comm->sources, (size_t)comm->world.local_size + 1));
    RAIA_TRY(comm_map_ranks(comm, STAGE_BYTES, "the collectives' stage", &mine));
    comm->stage = &comm->region[0];
    return RAIA_OK;
}

raia_status comm_open(raia_comm **out, const struct world *world, struct control *control,
                      struct node *node, struct wire *wire, size_t arena)
{
    (void)arena; /* every mapping has the size that is asked for */
    if (world->nodes > 1)
        return fail(RAIA_EUNSUPPORTED,
                    "%d nodes: collectives between nodes are not built yet; run on one node",
                    world->nodes);
    raia_comm *comm;
    RAIA_TRY(MEM_NEW(&comm, 1));
    comm->world = *world;
    comm->control = control;
    comm->node = world->local_size > 1 ? node : NULL;
    comm->wire = wire;
    comm->timeout_s = 300;
    raia_status status = open_comm(comm);
    if (status != RAIA_OK) {
        comm_close(comm);
        return status;
    }
    *out = comm;
    return RAIA_OK;
}

void comm_close(raia_comm *comm)
{
    if (comm == NULL)
        return;
    for (int i = 0; i < comm->maps; i++)
        munmap(comm->mapped[i], comm->mapped_bytes[i]);
    free(comm->sources);
    free(comm);
}

raia_status comm_sum_f64(raia_comm *comm, double *values, size_t count)
{
    if (count > COMM_RANKS_SUM)
        return fail(RAIA_EBUG, "comm_sum_f64: %zu values, at most %d", count, COMM_RANKS_SUM);
    double *mine = (double *)comm_part(comm->stage, comm->world.local_rank);
    memcpy(mine, values, count * sizeof *values);
    RAIA_TRY(comm_meet(comm));
    for (size_t i = 0; i < count; i++) {
        values[i] = 0;
        for (int r = 0; r < comm->world.local_size; r++)
            values[i] += ((const double *)comm_part(comm->stage, r))[i];
    }
    /* The stage is free again only when all have read it. */
    return comm_meet(comm);
}

raia_status comm_gather_bytes(raia_comm *comm, const void *send, const size_t *bytes, void *recv)
{
    size_t most = 0;
    for (int r = 0; r < comm->world.size; r++)
        most = bytes[r] > most ? bytes[r] : most;
    for (size_t at = 0; at < most; at += comm->stage->bytes) {
        size_t offset = 0;
        for (int r = 0; r < comm->world.size; r++) {
            size_t left = bytes[r] > at ? bytes[r] - at : 0;
            size_t n = left < comm->stage->bytes ? left : comm->stage->bytes;
            if (r == comm->world.rank && n > 0)
                memcpy(comm_part(comm->stage, r), (const char *)send + at, n);
        }
        RAIA_TRY(comm_meet(comm));
        for (int r = 0; r < comm->world.size; r++) {
            size_t left = bytes[r] > at ? bytes[r] - at : 0;
            size_t n = left < comm->stage->bytes ? left : comm->stage->bytes;
            if (n > 0)
                memcpy((char *)recv + offset + at, comm_part(comm->stage, r), n);
            offset += bytes[r];
        }
        RAIA_TRY(comm_meet(comm));
    }
    return RAIA_OK;
}
