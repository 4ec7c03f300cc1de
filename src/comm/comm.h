/* comm: collectives over node-shared memory and the wire. The public ones are in <raia/comm.h>;
 * here is what FSDP uses besides them: collectives on the node's shared memory, split into a start
 * and a wait, so that they run beside computing.
 *
 * On a node nothing is copied that can be shared; between nodes a byte crosses once per node. */
#ifndef RAIA_COMM_INTERNAL_H
#define RAIA_COMM_INTERNAL_H

#include "base/base.h"
#include "fabric/fabric.h"

#include <raia/comm.h>

/* Takes over nothing: control, node and wire stay the caller's and outlive the communicator. NODE
 * or WIRE may be NULL when the world has one rank (node) or one node (wire). ARENA: bytes of shared
 * arena a rank for raia_comm_alloc and staging (0: 64 MiB). */
raia_status comm_open(raia_comm **out, const struct world *world, struct control *control,
                      struct node *node, struct wire *wire, size_t arena);
void comm_close(raia_comm *comm);
const struct world *comm_world(const raia_comm *comm);

/* Payload bytes that this rank has sent to other nodes since the communicator was opened. */
uint64_t comm_bytes_out(const raia_comm *comm);

/* Memory that all ranks of the node map: for buffers that exist once a node. Collective over the
 * node; lives as long as the communicator. */
raia_status comm_map_node(raia_comm *comm, size_t bytes, const char *what, void **out);
/* Memory of which each local rank has a part of BYTES that the node's others can read: *OUT is this
 * rank's. */
raia_status comm_map_ranks(raia_comm *comm, size_t bytes, const char *what, void **out);

struct comm_request; /* owned by the communicator; ends with comm_wait */

/* All-gather into memory of comm_map_node. BUFFER holds slices [begin[r], begin[r+1]) (bytes; begin
 * has size+1 entries) in rank order. SLICE is where this rank's slice is (inside BUFFER, or
 * elsewhere). Start: this rank's slice is final, and this node no longer reads what BUFFER held
 * before (the caller guarantees that for itself; the communicator waits for the others). After the
 * wait the whole buffer may be read by this rank. A slice moves between nodes once per node.
 * Requests start in the same order on all ranks; several may be in flight on different buffers. */
raia_status comm_gather_start(raia_comm *comm, void *buffer, const size_t *begin, const void *slice,
                              struct comm_request **out);

/* Reduce-scatter (sum) from memory of comm_map_ranks. CONTRIBUTION (this rank's, COUNT =
 * begin[size] elements of DTYPE) has slices [begin[r], begin[r+1]) in elements. After the wait OUT
 * holds this rank's slice summed over all ranks (fp32 sums on the node, in rank order; the node
 * sums cross in WIRE_DTYPE; nodes are added in order) in OUT_DTYPE; if ACCUMULATE the sum is added
 * to what OUT held. After the wait this rank may overwrite CONTRIBUTION: the others have read it.
 */
struct comm_reduce {
    const void *contribution;
    const size_t *begin;
    raia_dtype dtype, wire_dtype, out_dtype;
    void *out;
    bool accumulate;
};
raia_status comm_reduce_start(raia_comm *comm, const struct comm_reduce *reduce,
                              struct comm_request **out);

raia_status comm_wait(raia_comm *comm, struct comm_request *request);
/* Moves transfers on; called between operations of the step. */
void comm_progress(raia_comm *comm);

/* Sum over all ranks of a few doubles (at most 64), in rank order: losses and norms. */
raia_status comm_sum_f64(raia_comm *comm, double *values, size_t count);
/* Variable all-gather of small private data (bytes[r] from rank r; RECV holds their sum, in rank
 * order). */
raia_status comm_gather_bytes(raia_comm *comm, const void *send, const size_t *bytes, void *recv);

#endif
