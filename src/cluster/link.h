/* link: messages that survive a lost connection. Both sides number what they send, keep it until
 * the other acknowledges it, and after a reconnect send again what the other has not seen. Two
 * kinds of message: JSON objects (text frames; the number is the member "seq") and log text (binary
 * frames: number and process as little-endian 64-bit words, then whole lines).
 *
 * A link outlives its connections. It belongs to the loop's thread. */
#ifndef RAIA_CLUSTER_LINK_H
#define RAIA_CLUSTER_LINK_H

#include "cluster/ws.h"

struct link_message;
struct link {
    uv_timer_t ack_timer;
    struct ws *ws;                         /* NULL while there is no connection */
    struct link_message *first, *last;     /* sent or waiting, not acknowledged */
    size_t bytes;                          /* of those */
    uint64_t sent_seq, seen_seq, told_seq; /* last numbered here, last seen, last acknowledged */
    size_t untold;                         /* bytes seen since the last acknowledgement */
    bool high, ticking, overflow;
    void (*message)(void *self, json_t *message); /* borrowed */
    void (*log)(void *self, uint64_t proc, const char *text, size_t len);
    void (*level)(void *self, bool high); /* the queue passed LINK_HIGH or fell below LINK_LOW */
    void *self;
    void (*closed)(struct link *link); /* set by link_close */
};

/* The callbacks and `self` are set by the caller before. */
void link_init(struct link *link, uv_loop_t *loop);
/* Takes WS; PEER_SEEN is the last number that the peer saw of this link. */
void link_attach(struct link *link, struct ws *ws, uint64_t peer_seen);
void link_detach(struct link *link);
/* Forgets all messages and numbers: the peer begins anew. */
void link_reset(struct link *link);
/* Sends and steals MESSAGE. When more than LIMIT_LINK waits, the link overflows and its connection
 * is cut. */
void link_send(struct link *link, json_t *message);
void link_send_log(struct link *link, uint64_t proc, const void *text, size_t len);
/* One message of the connection. RAIA_EFORMAT when it is not one of ours: the caller drops the ws.
 */
raia_status link_receive(struct link *link, bool text, const void *data, size_t len);
/* True when the peer has seen everything. */
bool link_settled(const struct link *link);
/* Frees the messages and closes the timer; CLOSED is called when the link's memory may go. */
void link_close(struct link *link, void (*closed)(struct link *link));

#endif
