/* wire_priv: the inside of the wire.
 *
 * No message leaves before its receive is posted, because a provider may hold few messages that
 * nobody expects (`net` of libfabric 1.17: four small ones, then the connection stands still). The
 * receiver posts its buffer under a libfabric tag that nobody else uses and then says READY (tag,
 * length, where) in a small control message; the sender answers with the data alone. Control
 * messages land in buffers posted beforehand. Each peer has WIRE_CREDITS of them for its READYs; a
 * READY is taken out of its buffer at once and kept in a list, whatever else is outstanding, and
 * credits go back in batches, so any number of transfers can be open in any order without one
 * waiting for another.
 *
 * One thread at a time uses a wire. After a failure that is not a message's wrong length the wire
 * is broken: every later call returns that failure, and buffers of open transfers may be freed only
 * after wire_close. */
#ifndef RAIA_FABRIC_WIRE_PRIV_H
#define RAIA_FABRIC_WIRE_PRIV_H

#include "fabric/fabric.h"
#include "fabric/wire_lib.h"

enum {
    WIRE_CREDITS = 16,     /* READYs that may be under way to a peer */
    WIRE_RESERVE = 8,      /* its other messages: hello, two batches of credits, refusals, bye */
    WIRE_TICK_MS = 100,    /* how often a wait looks at the run's abort and its own time */
    WIRE_BYE_MS = 5000,    /* how long an end waits for the peers' */
    WIRE_COMPLETIONS = 16, /* read from the queue at once */
    WIRE_QUEUE = 16384,    /* completions that may be under way */
};

/* ---- wire_providers.c ---- */

/* One libfabric provider that raia can use; several may stand for the same name. */
struct wire_provider {
    const char *family; /* as people say it: "efa", "verbs", "tcp" */
    const char *name;   /* as libfabric says it */
    uint32_t least;     /* version of libfabric, 0: any */
    bool by_address;    /* endpoints are bound to an IP address of an interface */
};
enum { WIRE_PROVIDERS = 5 };
extern const struct wire_provider wire_providers[WIRE_PROVIDERS]; /* best first */

/* NAME is "auto", "shm" or a family, FI_PROVIDER agrees with it, and NODES nodes can be joined by
 * it. */
raia_status wire_check_name(const char *name, int nodes);
bool wire_name_covers(const char *name, const struct wire_provider *provider);
/* FI_PROVIDER's list (NULL: everything) against a libfabric provider name. */
bool wire_filter_allows(const char *filter, const struct wire_provider *provider);
/* The first usable entry for PROVIDER bound to ADDRESS (may be NULL); NULL when there is none. Free
 * with lib->freeinfo. */
struct fi_info *wire_getinfo(const struct wire_lib *lib, const struct wire_provider *provider,
                             const char *address);
/* The array of names of the providers that work here, best first. */
raia_status wire_found(const struct wire_lib *lib, const char *name, const char *address,
                       json_t **out);
/* The best provider that all ranks found; ABOUT is each rank's {"wanted","found",…}. */
raia_status wire_agree(const json_t *about, const struct wire_provider **out);

/* ---- wire_interface.c ---- */

struct wire_interface {
    char name[32];
    char address[64]; /* numeric */
};
/* NCCL_SOCKET_IFNAME's language: a list of prefixes; '=' before it: of exact names; '^': everything
 * but. */
bool wire_interface_matches(const char *patterns, const char *name);
raia_status wire_interface_choose(struct control *control, bool one_host,
                                  struct wire_interface *out);

/* The name of the interface that has ADDRESS, "?" when none has. */
void wire_interface_of(const char *address, char name[32]);

/* ---- wire_endpoint.c: libfabric's objects ---- */

struct wire_region {
    const char *base;
    size_t bytes;
    struct fid_mr *mr;
};

struct wire_endpoint {
    const struct wire_lib *lib;
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    bool can_sleep;              /* the queue can be waited for; else it must be polled */
    unsigned idle;               /* polls in turn that found nothing */
    bool local_mr;               /* buffers must be registered */
    uint64_t next_key;           /* where the provider does not choose keys */
    struct wire_region *regions; /* registered for good */
    int region_count;
};

raia_status endpoint_open(struct wire_endpoint *ep, const struct wire_lib *lib,
                          const struct wire_provider *provider, const char *address);
/* From then on libfabric touches no buffer. */
void endpoint_stop(struct wire_endpoint *ep);
void endpoint_close(struct wire_endpoint *ep);
/* The endpoint's address as bytes of at most *LEN. */
raia_status endpoint_name(const struct wire_endpoint *ep, void *name, size_t *len);
raia_status endpoint_register(struct wire_endpoint *ep, const void *base, size_t bytes,
                              struct fid_mr **out);
/* Registers for the endpoint's life. */
raia_status endpoint_keep(struct wire_endpoint *ep, const void *base, size_t bytes);
/* The region that holds [base, base + bytes), or NULL. */
const struct wire_region *endpoint_region(const struct wire_endpoint *ep, const void *base,
                                          size_t bytes);
/* Reads completions; sleeps up to MS until there is one. -FI_EAGAIN: none. */
ssize_t endpoint_read(struct wire_endpoint *ep, struct fi_cq_tagged_entry *entry, size_t count,
                      int ms);

/* ---- wire_flow.c: the protocol ---- */

enum wire_op_kind { OP_CONTROL, OP_DATA, OP_BYE };

/* One operation that libfabric holds; its context comes first and comes back with the completion.
 */
struct wire_op {
    struct fi_context2 context;
    enum wire_op_kind kind;
    struct wire_op *next;         /* OP_CONTROL: in the list to be posted again */
    struct wire_request *request; /* OP_DATA */
    struct wire_peer *peer;       /* OP_BYE */
    struct wire_message *message; /* OP_CONTROL: its place in the registered block */
};

enum wire_message_kind { WIRE_HELLO = 1, WIRE_READY, WIRE_CREDIT, WIRE_MISMATCH, WIRE_BYE };

/* A control message; little endian, 40 bytes. */
struct wire_message {
    uint64_t run; /* a number of this run: a stray message of another is ignored */
    uint32_t kind, from;
    uint64_t tag;  /* READY: the user's */
    uint64_t len;  /* READY: the receiver's; MISMATCH: the sender's; CREDIT: how many */
    uint32_t slot; /* READY, MISMATCH: the receive */
    uint32_t turn; /* READY: counts them, to prove that they come in order */
};

/* A READY that no send has met yet. */
struct wire_ready {
    struct wire_ready *next;
    uint64_t tag, len;
    uint32_t slot;
};

struct wire_list {
    struct wire_request *first, **last;
};

struct wire_request {
    struct wire_op op;
    struct wire_request *next; /* in its peer's list, or the free list */
    struct wire_peer *peer;
    bool sending, done;
    bool held; /* libfabric may still use op and data */
    uint64_t tag;
    char *data;
    size_t len;
    uint32_t index;    /* in the wire's table, for good */
    uint32_t slot;     /* sending: the receive's index at the peer */
    struct fid_mr *mr; /* for this transfer alone, or NULL */
    void *desc;
    size_t other_len; /* what the peer said, when it differs (refused) */
    bool refused;
};

struct wire_peer {
    int rank, node;
    bool remote; /* of another node: has an address */
    bool greeting, greeted, parting, parted, bye_sent;
    fi_addr_t address;
    int credits;                  /* READYs that may still be sent */
    int owed;                     /* READYs taken from the peer whose credit has not gone back */
    uint32_t turn_out, turn_in;   /* READYs sent and taken, ever */
    struct wire_list sends;       /* wait for their READY */
    struct wire_list to_send;     /* have it; wait for the endpoint's queue */
    struct wire_list to_announce; /* receives that wait for a credit or the queue */
    struct wire_ready *ready, **ready_last;
    struct wire_op bye;
    struct wire_message *bye_message; /* in the registered block */
};

struct wire {
    struct control *control;
    struct world world;                   /* node_first is a copy of its own */
    const struct wire_provider *provider; /* NULL: one node */
    struct wire_interface interface;
    struct wire_endpoint ep;
    uint64_t timeout_ns, run;
    int remote;                    /* ranks of other nodes */
    struct wire_peer *peers;       /* [world.size] */
    struct wire_message *messages; /* the registered block of control messages and goodbyes */
    struct wire_op *control_ops;
    int control_count;
    struct wire_op *to_repost; /* control receives that could not be posted */
    struct wire_ready *idle_ready;
    struct wire_request *idle_requests;
    struct wire_request **requests; /* the table of all */
    int request_count;
    void **blocks; /* what the two idle lists were cut from */
    int block_count;
    int active;                /* requests that are not done */
    bool behind;               /* something could not be posted and must be tried again */
    uint64_t *sent, *received; /* [world.nodes] payload bytes */
    uint64_t *message_count;   /* [world.nodes] handed to libfabric, of every kind */
    raia_status status;        /* not RAIA_OK: nothing works any more */
    char text[512];
};

/* Takes completions, for the first of which it sleeps up to MS, and posts what can be posted. */
void flow_progress(struct wire *wire, int ms);
/* Starts a transfer. */
raia_status flow_start(struct wire *wire, struct wire_peer *peer, bool sending, uint64_t tag,
                       void *data, size_t len, struct wire_request **out);
/* Gives a request back to its pool, unless libfabric still holds it. */
void flow_free(struct wire *wire, struct wire_request *request);
/* A peer's READY: the send that it is for goes out, or the READY is kept for it. */
void flow_ready(struct wire *wire, struct wire_peer *peer, const struct wire_message *message);
/* Ends a request whose peer gave another length. */
void flow_refuse(struct wire *wire, struct wire_request *request, size_t other_len);
/* Posts what a peer's lists hold. */
void flow_push(struct wire *wire, struct wire_peer *peer);
/* Gives the wire up; the first failure is kept. */
void wire_break(struct wire *wire, raia_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- wire_message.c: control messages ---- */

/* Posts the buffers of control messages; peers may greet from then on. */
raia_status message_open(struct wire *wire);
void message_close(struct wire *wire);
/* Posts again what the queue did not take before: buffers, credits, greetings. */
void message_push(struct wire *wire);
/* A control buffer was filled: handles the message and posts the buffer again. */
void message_arrived(struct wire *wire, struct wire_op *op, size_t len);
/* False when the endpoint's queue is full for now (the wire is then `behind`) or the wire broke. */
bool message_send(struct wire *wire, struct wire_peer *peer, const struct wire_message *message);
/* Waits until every remote peer has greeted and been greeted: all connections stand. */
raia_status message_greet(struct wire *wire, uint64_t deadline);
/* Says goodbye and waits a moment for the others': no connection is cut with something on it. */
void message_part(struct wire *wire);

/* ---- wire.c ---- */

/* The RDMA device of the endpoint; NULL where the provider is bound to an interface's address. */
const char *wire_device(const struct wire *wire);

/* ---- evidence.c ---- */

/* Where a rank is: ranks with the same boot and netns share their interfaces. */
struct wire_place {
    char boot[64], netns[64];
};
raia_status wire_place(struct wire_place *out);

/* ---- evidence_counters.c ---- */

/* The interfaces of this network namespace, and every RDMA device, with their counters. */
raia_status counters_interfaces(const char *root, json_t **out);
raia_status counters_devices(const char *root, json_t **out);

/* ---- wire_pool.c ---- */

raia_status pool_request(struct wire *wire, struct wire_request **out);
raia_status pool_ready(struct wire *wire, struct wire_ready **out);
void pool_release(struct wire *wire);

#endif
