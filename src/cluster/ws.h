/* ws: one WebSocket (RFC 6455) over a connected stream socket, on a libuv loop. The HTTP handshake
 * is done before; a socket pair needs none, so that the same frames also join an agent and its
 * supervisors.
 *
 * All functions belong to the loop's thread. A ws frees itself after `closed` has been called. */
#ifndef RAIA_CLUSTER_WS_H
#define RAIA_CLUSTER_WS_H

#include "base/base.h"

#include <uv.h>

enum { WS_NORMAL = 1000, WS_GOING_AWAY = 1001, WS_REFUSED = 1008, WS_LOST = 1006 };

struct ws_events {
    /* A whole message, borrowed. */
    void (*message)(void *self, bool text, const void *data, size_t len);
    /* The queue has run empty; may be NULL. */
    void (*drained)(void *self);
    /* The end: the peer's close code, or WS_LOST. Nothing of the ws may be used after. */
    void (*closed)(void *self, int code);
};

struct ws_config {
    uv_loop_t *loop;
    int fd;      /* nonblocking; the ws owns it unless `release` is set */
    bool client; /* this side masks */
    void *curl; /* CURL * whose connection fd is (TLS may be in between), or NULL; the ws owns it */
    const void *extra; /* bytes that came with the handshake, copied */
    size_t extra_len;
    size_t max_message;
    unsigned beat_ms, silence_ms; /* 0: no heartbeat */
    const struct ws_events *events;
    void *self;
    void (*release)(void *arg); /* gives the socket back instead of closing it */
    void *release_arg;
};

struct ws;
raia_status ws_open(struct ws **out, const struct ws_config *config);
/* Queues a copy of the message. The caller bounds the queue by ws_queued. RAIA_EPEER when the ws
 * ends. */
raia_status ws_send(struct ws *ws, bool text, const void *data, size_t len);
size_t ws_queued(const struct ws *ws);
/* Stops or goes on taking messages from the peer. */
void ws_hold(struct ws *ws, bool hold);
/* Closes with CODE once the queue has been sent; the peer has 2 s to answer. */
void ws_close(struct ws *ws, int code);
/* Ends the connection without a close frame: the peer sees 1006. */
void ws_drop(struct ws *ws);

#endif
