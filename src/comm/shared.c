/* FSDP's collectives on memory that the node shares: nothing is copied that is where it should be,
 * and each rank reduces its own slice from where the others wrote theirs. */
#include "comm/comm_priv.h"

#include <string.h>

static raia_status take_request(raia_comm *comm, struct comm_request **out)
{
    for (int i = 0; i < COMM_REQUESTS; i++)
        if (comm->request[i].kind == REQUEST_FREE) {
            *out = &comm->request[i];
            return RAIA_OK;
        }
    return fail(RAIA_EBUG, "more than %d collectives in flight", COMM_REQUESTS);
}

raia_status comm_gather_start(raia_comm *comm, void *buffer, const size_t *begin, const void *slice,
                              struct comm_request **out)
{
    struct comm_request *r = NULL;
    RAIA_TRY(take_request(comm, &r));
    *r = (struct comm_request){ .kind = REQUEST_GATHER,
                                .sequence = ++comm->gathers,
                                .buffer = buffer,
                                .begin = begin,
                                .slice = slice };
    if (comm->node != NULL)
        node_post(comm->node, COUNTER_GATHER, r->sequence);
    *out = r;
    return RAIA_OK;
}

static raia_status wait_gather(raia_comm *comm, struct comm_request *r)
{
    char *place = r->buffer + r->begin[comm->world.rank];
    size_t bytes = r->begin[comm->world.rank + 1] - r->begin[comm->world.rank];
    if (comm->node != NULL)
        RAIA_TRY(node_wait_all(comm->node, COUNTER_GATHER, r->sequence));
    if (r->slice == place)
        return RAIA_OK; /* for all ranks alike: every slice is where it is read */
    if (bytes > 0)
        memcpy(place, r->slice, bytes);
    if (comm->node == NULL)
        return RAIA_OK;
    node_post(comm->node, COUNTER_GATHERED, r->sequence);
    return node_wait_all(comm->node, COUNTER_GATHERED, r->sequence);
}

static const struct region *region_of(const raia_comm *comm, const void *p, size_t *at)
{
    for (int i = 0; i < comm->regions; i++) {
        const char *part = comm_part(&comm->region[i], comm->world.local_rank);
        if ((const char *)p >= part && (const char *)p < part + comm->region[i].stride) {
            *at = (size_t)((const char *)p - part);
            return &comm->region[i];
        }
    }
    return NULL;
}

raia_status comm_reduce_start(raia_comm *comm, const struct comm_reduce *reduce,
                              struct comm_request **out)
{
    struct comm_request *r = NULL;
    size_t at = 0;
    const struct region *region = region_of(comm, reduce->contribution, &at);
    if (region == NULL)
        return fail(RAIA_EBUG, "comm_reduce_start: the contribution is not in memory of "
                               "comm_map_ranks");
    RAIA_TRY(take_request(comm, &r));
    *r = (struct comm_request){ .kind = REQUEST_REDUCE,
                                .sequence = ++comm->reduces,
                                .reduce = *reduce,
                                .region = region,
                                .at = at };
    if (comm->node != NULL)
        node_post(comm->node, COUNTER_REDUCE, r->sequence);
    *out = r;
    return RAIA_OK;
}

/* Adds in f32 what OUT held, block by block, since its type may be another. */
static void sum_onto(raia_comm *comm, const struct comm_reduce *d, const void **sources, size_t n)
{
    enum { BLOCK = 1024 };
    float sum[BLOCK], held[BLOCK];
    size_t from = raia_dtype_size(d->dtype), to = raia_dtype_size(d->out_dtype);
    int ranks = comm->world.local_size;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = n - at < BLOCK ? n - at : BLOCK;
        const void *here[1] = { (char *)d->out + at * to };
        const struct reduce fetch = { .sources = here,
                                      .n = 1,
                                      .dst = held,
                                      .count = count,
                                      .dtype = d->out_dtype,
                                      .dst_dtype = RAIA_F32,
                                      .op = RAIA_SUM };
        tensor_reduce(&fetch);
        const struct reduce add = { .sources = sources,
                                    .n = ranks,
                                    .dst = sum,
                                    .count = count,
                                    .dtype = d->dtype,
                                    .dst_dtype = RAIA_F32,
                                    .op = RAIA_SUM };
        tensor_reduce(&add);
        const void *both[2] = { held, sum };
        const struct reduce store = { .sources = both,
                                      .n = 2,
                                      .dst = (char *)d->out + at * to,
                                      .count = count,
                                      .dtype = RAIA_F32,
                                      .dst_dtype = d->out_dtype,
                                      .op = RAIA_SUM };
        tensor_reduce(&store);
        for (int r = 0; r < ranks; r++)
            sources[r] = (const char *)sources[r] + count * from;
    }
}

static void sum_slice(raia_comm *comm, const struct comm_request *r)
{
    const struct comm_reduce *d = &r->reduce;
    size_t first = d->begin[comm->world.rank], n = d->begin[comm->world.rank + 1] - first;
    for (int i = 0; i < comm->world.local_size; i++)
        comm->sources[i] = comm_part(r->region, i) + r->at + first * raia_dtype_size(d->dtype);
    if (n == 0)
        return;
    if (d->accumulate) {
        sum_onto(comm, d, comm->sources, n);
        return;
    }
    const struct reduce a = { .sources = comm->sources,
                              .n = comm->world.local_size,
                              .dst = d->out,
                              .count = n,
                              .dtype = d->dtype,
                              .dst_dtype = d->out_dtype,
                              .op = RAIA_SUM };
    tensor_reduce(&a);
}

static raia_status wait_reduce(raia_comm *comm, struct comm_request *r)
{
    if (comm->node != NULL)
        RAIA_TRY(node_wait_all(comm->node, COUNTER_REDUCE, r->sequence));
    sum_slice(comm, r);
    if (comm->node == NULL)
        return RAIA_OK;
    node_post(comm->node, COUNTER_REDUCED, r->sequence);
    return node_wait_all(comm->node, COUNTER_REDUCED, r->sequence);
}

raia_status comm_wait(raia_comm *comm, struct comm_request *request)
{
    raia_status status =
        request->kind == REQUEST_GATHER ? wait_gather(comm, request) : wait_reduce(comm, request);
    request->kind = REQUEST_FREE;
    return status;
}

void comm_progress(raia_comm *comm)
{
    (void)comm; /* on one node whoever waits does the work */
}
