/* What the communicator's files share. */
#ifndef RAIA_COMM_PRIV_H
#define RAIA_COMM_PRIV_H

#include "comm/comm.h"
#include "tensor/tensor.h"

/* The node's counters that this room uses; each grows by one an event. */
enum comm_counter {
    COUNTER_PHASE,
    COUNTER_GATHER,
    COUNTER_GATHERED,
    COUNTER_REDUCE,
    COUNTER_REDUCED
};

enum { COMM_REQUESTS = 64, COMM_REGIONS = 256, COMM_RANKS_SUM = 64 };

/* Memory that each local rank has a part of. */
struct region {
    char *base; /* local rank 0's part */
    size_t stride, bytes;
};

enum request_kind { REQUEST_FREE, REQUEST_GATHER, REQUEST_REDUCE };
struct comm_request {
    enum request_kind kind;
    uint64_t sequence;
    /* gather */
    char *buffer;
    const size_t *begin;
    const void *slice;
    /* reduce */
    struct comm_reduce reduce;
    const struct region *region;
    size_t at; /* of the contribution in its part */
};

struct raia_comm {
    struct world world;
    struct control *control;
    struct node *node;
    struct wire *wire;
    double timeout_s;
    uint64_t phase, gathers, reduces; /* events so far */
    uint64_t bytes_out;
    struct comm_request request[COMM_REQUESTS];
    struct region region[COMM_REGIONS];
    int regions;
    void *mapped[COMM_REGIONS]; /* private memory of a world of one rank */
    size_t mapped_bytes[COMM_REGIONS];
    int maps;
    struct region *stage; /* of the collectives on any memory */
    const void **sources; /* [local_size] */
};

/* All local ranks have come here; what each wrote before is seen by all. */
raia_status comm_meet(raia_comm *comm);
char *comm_part(const struct region *region, int local_rank);

#endif
