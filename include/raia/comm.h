/* comm: collectives among the ranks of a run, for programs that want them without the trainer.
 *
 * Every rank of the communicator calls the same function with the same count, type and operation,
 * in the same order. A call returns when this rank's result is in place. Reductions accumulate in
 * fp32 for floating types and run in a fixed order (ranks of a node in order, then nodes in order),
 * so that the same placement gives the same bits. Any count and any number of ranks are allowed; a
 * wait is bounded (raia_comm_timeout) and its error names the rank that is late. */
#ifndef RAIA_COMM_H
#define RAIA_COMM_H

#include <raia/types.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct raia_comm raia_comm;

RAIA_API int raia_comm_rank(const raia_comm *comm);
RAIA_API int raia_comm_size(const raia_comm *comm);

/* Seconds a wait may last before it fails with RAIA_ETIMEDOUT; 0 leaves it unbounded. Default 300.
 */
RAIA_API void raia_comm_timeout(raia_comm *comm, double seconds);

/* Buffers may be any memory. In-place operation is asked for by passing the same pointer as SEND
 * and RECV (all_gather and reduce_scatter: SEND, RECV as in MPI's IN_PLACE: this rank's block lies
 * at its offset rank*count in the large buffer). COUNT is in elements and is, as in NCCL, the count
 * of the small side for all_gather (sent by each rank), reduce_scatter (received by each) and
 * all_to_all (sent to each peer). Types of reductions: F32, BF16, F16, I32; others: any type. */
RAIA_API raia_status raia_all_reduce(raia_comm *comm, const void *send, void *recv, size_t count,
                                     raia_dtype dtype, raia_op op);
RAIA_API raia_status raia_all_gather(raia_comm *comm, const void *send, void *recv, size_t count,
                                     raia_dtype dtype);
RAIA_API raia_status raia_reduce_scatter(raia_comm *comm, const void *send, void *recv,
                                         size_t count, raia_dtype dtype, raia_op op);
RAIA_API raia_status raia_broadcast(raia_comm *comm, void *buffer, size_t count, raia_dtype dtype,
                                    int root);
RAIA_API raia_status raia_reduce(raia_comm *comm, const void *send, void *recv, size_t count,
                                 raia_dtype dtype, raia_op op, int root);
RAIA_API raia_status raia_all_to_all(raia_comm *comm, const void *send, void *recv, size_t count,
                                     raia_dtype dtype);
RAIA_API raia_status raia_barrier(raia_comm *comm);

/* Memory of the node's shared arena: collectives on it copy nothing within a node. Collective over
 * all ranks, which ask for the same BYTES; *OUT is this rank's own buffer, 64-byte aligned, zeroed.
 * It lives as long as the communicator. Not for use inside a training step. */
RAIA_API raia_status raia_comm_alloc(raia_comm *comm, size_t bytes, void **out);

#ifdef __cplusplus
}
#endif
#endif
