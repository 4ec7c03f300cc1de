/* control_priv: the inside of the control channel's server, shared by control_server.c (thread,
 * sockets, buffers) and control_session.c (what a frame means). Everything but `lock` and what it
 * guards belongs to the thread. */
#ifndef RAIA_FABRIC_CONTROL_PRIV_H
#define RAIA_FABRIC_CONTROL_PRIV_H

#include "fabric/control_frame.h"
#include "fabric/fabric.h"

#include <pthread.h>
#include <stdatomic.h>

struct entry; /* one published value, in control_store.c */

/* A rank's request that is answered later, when its value comes. */
struct wait {
    struct wait *next;
    uint64_t id;
    int part; /* of a gather: the first rank whose value has not been seen; -1: a plain get */
    int size; /* of a gather: the run's, which may be less than the server takes */
    char key[FRAME_KEY_MAX + 1];
};

struct conn {
    struct conn *next;
    int fd;
    int rank; /* -1 until its hello was accepted */
    bool clean, dead;
    bool told;       /* the abort has been sent */
    uint32_t events; /* what epoll watches */
    uint64_t hello_deadline;
    struct buf in, out; /* bytes not yet handled; bytes not yet sent, from out_at on */
    size_t out_at;
    struct wait *waits;
    int wait_count;
};

struct control_server {
    struct control_callbacks callbacks;
    int listen_fd, epoll_fd, wake_fd;
    int size;
    char *token;
    struct conn *conns;
    int conn_count;
    char *step;          /* what one read takes; used by the thread alone */
    struct conn **ranks; /* [size], NULL where no connection is */
    struct entry *store;
    size_t stored;
    uint64_t strangers; /* connections dropped before a good hello */
    pthread_t thread;
    atomic_bool stopping;
    pthread_mutex_t lock;
    char *reason; /* of the abort, NULL before; guarded by lock */
};

/* ---- control_server.c ---- */

/* Queues a frame and sends what the socket takes; a connection that cannot be written to becomes
 * dead. */
void conn_send(struct control_server *server, struct conn *conn, const struct frame *frame);
/* Gives up on the connection; it is freed at the end of the thread's turn. */
void conn_drop(struct conn *conn);

/* ---- control_session.c ---- */

/* Handles one whole frame; a failure means that the connection cannot go on. */
raia_status session_frame(struct control_server *server, struct conn *conn,
                          const struct frame *frame);
void session_tell_abort(struct control_server *server, struct conn *conn);
void session_release(struct conn *conn);

/* ---- control_client.c ---- */

int control_socket(const struct control *control);

/* ---- control_store.c ---- */

/* RAIA_EINVAL when the key is there already. */
raia_status store_put(struct control_server *server, const char *key, const void *data, size_t len);
/* Borrowed; false when the key is not there. */
bool store_get(const struct control_server *server, const char *key, const void **data,
               size_t *len);
void store_release(struct control_server *server);

/* Quick small frames and notice of a peer that vanished without closing, within about 15 s. */
void control_tune_socket(int fd);

#endif
