/* The public collectives on any memory of one node: through a stage that all ranks map, a block at
 * a time. All are the same three beats: each rank puts its part where the others see it, all meet,
 * each takes what it needs; all meet again before the stage is used anew. */
#include "comm/comm_priv.h"

#include <string.h>

static bool reducible(raia_dtype dtype)
{
    return dtype == RAIA_F32 || dtype == RAIA_BF16 || dtype == RAIA_F16 || dtype == RAIA_I32;
}

static raia_status check(const char *what, raia_dtype dtype, raia_op op, bool reduces)
{
    if ((unsigned)dtype >= RAIA_DTYPE_COUNT)
        return fail(RAIA_EINVAL, "%s: type %d is none of raia_dtype's", what, (int)dtype);
    if (reduces && (!reducible(dtype) || (unsigned)op >= RAIA_OP_COUNT))
        return fail(RAIA_EINVAL,
                    "%s: cannot reduce %s with operation %d; types are f32, bf16, f16, "
                    "i32",
                    what, raia_dtype_name(dtype), (int)op);
    return RAIA_OK;
}

static raia_status check_root(const raia_comm *comm, const char *what, int root)
{
    if (root < 0 || root >= comm->world.size)
        return fail(RAIA_EINVAL, "%s: root %d of %d ranks", what, root, comm->world.size);
    return RAIA_OK;
}

/* Elements that fit the stage. */
static size_t block_of(const raia_comm *comm, raia_dtype dtype, size_t parts)
{
    size_t n = comm->stage->bytes / raia_dtype_size(dtype) / parts;
    return n > 0 ? n : 1;
}

static char *mine(const raia_comm *comm)
{
    return comm_part(comm->stage, comm->world.local_rank);
}

/* Reduces elements [FIRST, FIRST + COUNT) of every rank's stage into DST. */
static void reduce_stage(raia_comm *comm, size_t first, size_t count, raia_dtype dtype, raia_op op,
                         void *dst)
{
    for (int r = 0; r < comm->world.size; r++)
        comm->sources[r] = comm_part(comm->stage, r) + first * raia_dtype_size(dtype);
    const struct reduce a = { .sources = comm->sources,
                              .n = comm->world.size,
                              .dst = dst,
                              .count = count,
                              .dtype = dtype,
                              .dst_dtype = dtype,
                              .op = op };
    if (count > 0)
        tensor_reduce(&a);
}

raia_status raia_all_reduce(raia_comm *comm, const void *send, void *recv, size_t count,
                            raia_dtype dtype, raia_op op)
{
    RAIA_TRY(check("all_reduce", dtype, op, true));
    size_t size = raia_dtype_size(dtype), block = block_of(comm, dtype, 1);
    size_t ranks = (size_t)comm->world.size, me = (size_t)comm->world.rank;
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;
        memcpy(mine(comm), (const char *)send + at * size, n * size);
        RAIA_TRY(comm_meet(comm));
        /* Each reduces its stripe over its own part, where the others then read it. */
        size_t first = n * me / ranks, end = n * (me + 1) / ranks;
        reduce_stage(comm, first, end - first, dtype, op, mine(comm) + first * size);
        RAIA_TRY(comm_meet(comm));
        for (size_t r = 0; r < ranks; r++) {
            size_t from = n * r / ranks, to = n * (r + 1) / ranks;
            memcpy((char *)recv + (at + from) * size, comm_part(comm->stage, (int)r) + from * size,
                   (to - from) * size);
        }
        RAIA_TRY(comm_meet(comm));
    }
    return RAIA_OK;
}

raia_status raia_all_gather(raia_comm *comm, const void *send, void *recv, size_t count,
                            raia_dtype dtype)
{
    RAIA_TRY(check("all_gather", dtype, RAIA_SUM, false));
    size_t size = raia_dtype_size(dtype), block = block_of(comm, dtype, 1);
    const char *own = send == recv ? (char *)recv + (size_t)comm->world.rank * count * size : send;
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;
        memcpy(mine(comm), own + at * size, n * size);
        RAIA_TRY(comm_meet(comm));
        for (int r = 0; r < comm->world.size; r++)
            memcpy((char *)recv + ((size_t)r * count + at) * size, comm_part(comm->stage, r),
                   n * size);
        RAIA_TRY(comm_meet(comm));
    }
    return RAIA_OK;
}

raia_status raia_reduce_scatter(raia_comm *comm, const void *send, void *recv, size_t count,
                                raia_dtype dtype, raia_op op)
{
    RAIA_TRY(check("reduce_scatter", dtype, op, true));
    size_t ranks = (size_t)comm->world.size, me = (size_t)comm->world.rank;
    size_t size = raia_dtype_size(dtype), block = block_of(comm, dtype, ranks);
    char *own = send == recv ? (char *)recv + me * count * size : recv;
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;
        for (size_t r = 0; r < ranks; r++)
            memcpy(mine(comm) + r * n * size, (const char *)send + (r * count + at) * size,
                   n * size);
        RAIA_TRY(comm_meet(comm));
        reduce_stage(comm, me * n, n, dtype, op, own + at * size);
        RAIA_TRY(comm_meet(comm));
    }
    return RAIA_OK;
}

raia_status raia_broadcast(raia_comm *comm, void *buffer, size_t count, raia_dtype dtype, int root)
{
    RAIA_TRY(check("broadcast", dtype, RAIA_SUM, false));
    RAIA_TRY(check_root(comm, "broadcast", root));
    size_t size = raia_dtype_size(dtype), block = block_of(comm, dtype, 1);
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;
        char *here = (char *)buffer + at * size;
        if (comm->world.rank == root)
            memcpy(mine(comm), here, n * size);
        RAIA_TRY(comm_meet(comm));
        if (comm->world.rank != root)
            memcpy(here, comm_part(comm->stage, root), n * size);
        RAIA_TRY(comm_meet(comm));
    }
    return RAIA_OK;
}

raia_status raia_reduce(raia_comm *comm, const void *send, void *recv, size_t count,
                        raia_dtype dtype, raia_op op, int root)
{
    RAIA_TRY(check("reduce", dtype, op, true));
    RAIA_TRY(check_root(comm, "reduce", root));
    size_t size = raia_dtype_size(dtype), block = block_of(comm, dtype, 1);
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;
        memcpy(mine(comm), (const char *)send + at * size, n * size);
        RAIA_TRY(comm_meet(comm));
        if (comm->world.rank == root)
            reduce_stage(comm, 0, n, dtype, op, (char *)recv + at * size);
        RAIA_TRY(comm_meet(comm));
    }
    return RAIA_OK;
}

raia_status raia_all_to_all(raia_comm *comm, const void *send, void *recv, size_t count,
                            raia_dtype dtype)
{
    RAIA_TRY(check("all_to_all", dtype, RAIA_SUM, false));
    size_t ranks = (size_t)comm->world.size, me = (size_t)comm->world.rank;
    size_t size = raia_dtype_size(dtype), block = block_of(comm, dtype, ranks);
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;
        for (size_t r = 0; r < ranks; r++)
            memcpy(mine(comm) + r * n * size, (const char *)send + (r * count + at) * size,
                   n * size);
        RAIA_TRY(comm_meet(comm));
        for (size_t r = 0; r < ranks; r++)
            memcpy((char *)recv + (r * count + at) * size,
                   comm_part(comm->stage, (int)r) + me * n * size, n * size);
        RAIA_TRY(comm_meet(comm));
    }
    return RAIA_OK;
}
