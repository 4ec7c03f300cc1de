/* fabric: how bytes move between the ranks of one run.
 *
 * Four parts, each its own file:
 *   control  - the run's control channel: the driver serves it, every rank holds one connection.
 * Key-value rendezvous, events up, files up, abort down. Small data only. node     - the ranks of
 * one node: shared mappings handed over a Unix socket, barriers, counters. wire     - libfabric RDM
 * endpoints between ranks of different nodes. evidence - what proves the wire: providers, bytes
 * sent, the kernel's counters; and the verdict.
 *
 * Every wait is bounded by the fabric's timeout and ends early when the run is aborted; its error
 * names the rank that is waited for. */
#ifndef RAIA_FABRIC_H
#define RAIA_FABRIC_H

#include "base/base.h"

/* Who takes part. Ranks are contiguous per node: node n holds ranks node_first[n] ..
 * node_first[n+1]-1. */
struct world {
    int rank, size;
    int local_rank, local_size;
    int node, nodes;
    int *node_first; /* [nodes + 1] */
};
int world_node_of(const struct world *world, int rank);

/* ---- control, the driver's side ---- */

struct control_server;
struct control_callbacks {
    void *self;
    /* An event of a rank (report, state, evidence), borrowed. Called from the server's thread. */
    void (*event)(void *self, int rank, const json_t *event);
    /* Bytes for file NAME (one or more safe components joined by '/') at OFFSET; a failure is sent
     * back to the rank. */
    raia_status (*chunk)(void *self, int rank, const char *name, uint64_t offset, const void *data,
                         size_t len);
    /* A rank's connection ended. CLEAN when it said goodbye first. */
    void (*lost)(void *self, int rank, bool clean);
};
/* Listens on HOST (a port is chosen when *PORT is 0) and serves SIZE ranks that present TOKEN, on a
 * thread of its own. Strangers (wrong token, malformed frames, slow hellos) are dropped and
 * limited. */
raia_status control_serve(struct control_server **out, const char *host, uint16_t *port,
                          const char *token, int size, const struct control_callbacks *callbacks);
/* Tells every rank to stop; REASON becomes their error text. */
void control_server_abort(struct control_server *server, const char *reason);
void control_server_close(struct control_server *server);

/* ---- control, a rank's side ---- */

struct control;
/* ADDRESS is "host:port". Retries until the deadline. */
raia_status control_connect(struct control **out, const char *address, const char *token, int rank,
                            uint64_t deadline);
/* Publishes a value once under KEY (at most 64 KiB); a second put of a key is RAIA_EINVAL. */
raia_status control_put(struct control *control, const char *key, const void *data, size_t len);
/* Waits for KEY's value; *DATA is the caller's to free. */
raia_status control_get(struct control *control, const char *key, void **data, size_t *len,
                        uint64_t deadline);
/* The same without waiting: RAIA_ENOTFOUND when nobody has put KEY. */
raia_status control_peek(struct control *control, const char *key, void **data, size_t *len);
/* Every rank of a run of SIZE publishes a JSON value under "KEY/RANK" and gets the array of all,
 * indexed by rank, which the caller decref's. RAIA_ETIMEDOUT names the ranks that did not come. */
raia_status control_gather(struct control *control, const char *key, int size, const json_t *mine,
                           uint64_t deadline, json_t **all);
/* This machine's address (numeric, 64 bytes) on the connection to the driver. */
raia_status control_local_address(const struct control *control, char *out);
/* What the kernel counted on that connection; LOOPBACK when the driver has the same address. */
struct control_traffic {
    char address[64];
    bool loopback;
    uint64_t sent, received; /* payload bytes */
};
raia_status control_traffic(const struct control *control, struct control_traffic *out);
/* Sends an event to the driver (borrowed); returns before it is handled. */
raia_status control_event(struct control *control, const json_t *event);
/* Sends part of a file to the driver's node and waits until it is written. */
raia_status control_chunk(struct control *control, const char *name, uint64_t offset,
                          const void *data, size_t len);
/* RAIA_OK while the run goes on; else RAIA_EPEER with the reason. One atomic load. */
raia_status control_check(struct control *control);
/* Says goodbye (CLEAN) or leaves as a failure. */
void control_close(struct control *control, bool clean);

/* ---- node: ranks that share memory ---- */

struct node;
/* The local ranks of WORLD meet over an abstract Unix socket whose name comes from the control
 * channel, prove by a nonce written in a shared mapping that they share memory, and name the rank
 * that does not. */
raia_status node_open(struct node **out, struct control *control, const struct world *world,
                      double timeout_s);
void node_close(struct node *node);
/* One mapping of BYTES (zeroed, backed by a memfd of that size, allocated whole: ENOMEM now, never
 * SIGBUS later) that all local ranks see; collective over the node, same BYTES and order. WHAT is
 * for errors. Unmapped by node_close. Pages are first touched by whoever writes them. */
raia_status node_map(struct node *node, size_t bytes, const char *what, void **out);
/* Waits for all local ranks. Yields and sleeps (futex); spins briefly only when local ranks <=
 * cores. */
raia_status node_barrier(struct node *node);
/* Monotonic counters, NODE_COUNTERS of them for each local rank, starting at 0. post: sets this
 * rank's counter to VALUE (which grows) after all its earlier writes; wait: until local rank WHO's
 * counter is >= VALUE. */
enum { NODE_COUNTERS = 64 };
void node_post(struct node *node, int counter, uint64_t value);
raia_status node_wait(struct node *node, int who, int counter, uint64_t value);
raia_status node_wait_all(struct node *node, int counter, uint64_t value);
bool node_reached(struct node *node, int who, int counter, uint64_t value); /* without waiting */
bool node_reached_all(struct node *node, int counter, uint64_t value);      /* without waiting */
/* Seconds that each later wait of this rank may last; 0: no bound. */
void node_timeout(struct node *node, double timeout_s);

/* ---- wire: endpoints between nodes ---- */

struct wire;
struct wire_request; /* owned by the wire; valid until waited for */

/* Which providers a name stands for: rows of a table in wire_providers.c. "auto" takes the best
 * that works; FI_PROVIDER and NCCL_SOCKET_IFNAME are obeyed; a contradiction with NAME is
 * RAIA_EINVAL. When the world has one node no endpoint is opened and the provider's name is "shm".
 * TIMEOUT_S bounds each wait; 0: no bound. One thread at a time uses a wire. */
raia_status wire_open(struct wire **out, struct control *control, const struct world *world,
                      const char *name, double timeout_s);
void wire_close(struct wire *wire);
const char *wire_provider(const struct wire *wire); /* "tcp;ofi_rxm", "efa", … or "shm" */
/* Registers memory that will be sent from or received into, where the provider wants it; harmless
 * elsewhere. */
raia_status wire_register(struct wire *wire, void *base, size_t bytes);
/* Starts a transfer; matching is by (peer, tag), messages of one (peer, tag)
 * match in order. A send may wait for its receive to be posted (rendezvous above a small size); the
 * buffer belongs to the wire until the wait. */
raia_status wire_send(struct wire *wire, int peer, uint64_t tag, const void *data, size_t len,
                      struct wire_request **out);
raia_status wire_recv(struct wire *wire, int peer, uint64_t tag, void *data, size_t len,
                      struct wire_request **out);
/* Waits (asleep where the provider can wake a sleeper) and frees the request. A message of another
 * length than asked for is RAIA_EBUG naming both, and the wire goes on. Any other failure (a peer
 * that is gone or late, the run's abort) is the wire's end: libfabric may write into the buffers of
 * open transfers until wire_close. */
raia_status wire_wait(struct wire *wire, struct wire_request *request);
bool wire_done(struct wire *wire, struct wire_request *request); /* makes progress, does not wait */
/* Moves pending transfers on without waiting; cheap when nothing is pending. */
void wire_progress(struct wire *wire);

/* ---- evidence ---- */

/* What one rank can say of the wire at this moment, as JSON: {"rank","node","host","netns",
 * "boot_id","seconds","fabric":"tcp","provider":"net","version","endpoints":[{"interface",
 * "address","device"}],"sent":{"NODE":bytes,…},"received":{…},"messages":{"NODE":count,…},
 * "control":{"interface","bytes"},"interfaces":[{"name","driver","tx","rx"}],
 * "efa":[{"device","driver","tx","rx"}]}. Counters are read under ROOT (NULL: "/"), interfaces of
 * the process's own network namespace; "efa" holds every RDMA device. The caller decref's. */
raia_status evidence_take(struct wire *wire, const struct world *world, const char *root,
                          json_t **out);
/* The verdict over all ranks' evidence before and after (arrays indexed by rank):
 * {"fabric","status":"pass|fail|inconclusive",
 * "required","reason","mend","pairs":[{"nodes":[a,b],"provider","sent","counted","interfaces":[…],"tolerance","status"}]}.
 * REQUIRE may be NULL. A pair's "sent" is what raia sent between the two; its "carried" is all
 * that raia is known to have sent over the pair's interfaces (other pairs' bytes and the control
 * channel's too), to which "counted" is compared; "tolerance" is how much more than "carried" may
 * be counted. */
raia_status evidence_verdict(const json_t *before, const json_t *after, const char *require,
                             json_t **out);
/* The verdict as the table people read. */
raia_status evidence_table(const json_t *verdict, struct buf *out);
/* Checks before step 0: REQUIRE against the provider that this rank's endpoints opened;
 * RAIA_EFABRIC says what was found. */
raia_status evidence_precheck(struct wire *wire, const char *require);

#endif
