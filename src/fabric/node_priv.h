/* node_priv: the inside of a node: what the local ranks share besides their buffers. */
#ifndef RAIA_FABRIC_NODE_PRIV_H
#define RAIA_FABRIC_NODE_PRIV_H

#include "fabric/fabric.h"

#include <sched.h>
#include <stdatomic.h>

enum {
    NODE_LINE = 128,    /* two cache lines: the prefetcher of x86 fetches pairs */
    NODE_TICK_MS = 100, /* how often a wait looks at the run's abort and its own time */
    NODE_NONCE = 16,
};

/* A value that ranks sleep on. The futex is the low half of `value` (little endian), so that a wait
 * never misses a change; `sleepers` spares the poster the system call when nobody sleeps. */
struct node_word {
    _Alignas(NODE_LINE) _Atomic uint64_t value;
    _Atomic uint32_t sleepers;
};

/* What each rank says of itself. */
struct node_member {
    _Alignas(NODE_LINE) uint8_t nonce[NODE_NONCE];
    _Atomic uint32_t nonce_written;
    cpu_set_t cpus;
    int error; /* errno of its share of the mapping that is being made, or 0 */
    _Alignas(NODE_LINE) _Atomic uint64_t barrier; /* the barrier that it has come to */
};

/* The first mapping; zeroed. After the members follow NODE_COUNTERS * local_size words,
 * those of one counter side by side. */
struct node_board {
    struct node_word arrived;            /* ranks that came to barriers, ever */
    struct node_word passed;             /* barriers that all came to */
    struct node_word all[NODE_COUNTERS]; /* a value that all ranks' counters reached, known late */
    struct node_member members[];
};

struct node_mapping {
    struct node_mapping *next;
    void *base;
    size_t bytes;
};

struct node {
    struct control *control;
    int node, rank, size, first; /* rank and size are local; first: global rank of local rank 0 */
    uint64_t timeout_ns;
    bool spin; /* local ranks <= cores */
    struct node_board *board;
    struct node_word *counters;
    struct node_mapping *mappings;
    uint64_t barriers; /* passed by this rank */
    int *links; /* [size] sockets: local rank 0's to each, the others' to 0 at [0]; -1 elsewhere */
};

/* ---- node_meet.c ---- */

/* Fills node->links and node->board. */
raia_status node_meet(struct node *node);

/* ---- node_map.c ---- */

size_t node_board_bytes(const struct node *node);
/* A sealed memfd of BYTES, not yet allocated. */
raia_status node_memfd(size_t bytes, int *fd);
/* Maps FD whole after a check of its size and seals, and remembers the mapping; FD stays the
 * caller's. */
raia_status node_map_fd(struct node *node, int fd, size_t bytes, void **out);
void node_unmap_all(struct node *node);

/* ---- node_link.c: messages with a descriptor over a link ---- */

struct node_message {
    uint32_t kind;   /* what the two sides agree on, NODE_SAYS_… */
    uint32_t status; /* raia_status */
    uint64_t value;
    uint8_t nonce[NODE_NONCE];
    char text[256];
};
enum { NODE_SAYS_HELLO = 0x6e6f6465, NODE_SAYS_BOARD, NODE_SAYS_SEEN, NODE_SAYS_GO, NODE_SAYS_MAP };

/* FD is sent along when >= 0. */
raia_status node_send(int link, const struct node_message *message, int fd);
/* Waits for a message of KIND until the deadline or the run's abort; FD (may be NULL) is -1 when
 * none came. WHOM is the sender's global rank. */
raia_status node_receive(struct node *node, int link, uint32_t kind, int whom, uint64_t deadline,
                         struct node_message *out, int *fd);

#endif
