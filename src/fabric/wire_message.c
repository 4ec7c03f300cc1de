/* Control messages: greetings, READYs, credits, refusals, goodbyes. */
#include "fabric/wire_priv.h"

#include <stdlib.h>

/* Data goes under the number of its receive, which has 32 bits. */
enum { CONTROL_SHIFT = 40 };
static const uint64_t control_tag = 1ULL << CONTROL_SHIFT;

static void *block_desc(const struct wire *wire)
{
    const struct wire_region *region = NULL;
    if (wire->ep.local_mr)
        region = endpoint_region(&wire->ep, wire->messages, sizeof *wire->messages);
    return region != NULL ? fi_mr_desc(region->mr) : NULL;
}

/* ---- buffers ---- */

static void post(struct wire *wire, struct wire_op *op)
{
    ssize_t code = fi_trecv(wire->ep.ep, op->message, sizeof *op->message, block_desc(wire),
                            FI_ADDR_UNSPEC, control_tag, 0, &op->context);
    if (code == -FI_EAGAIN) {
        op->next = wire->to_repost;
        wire->to_repost = op;
        wire->behind = true;
    } else if (code != 0) {
        wire_break(wire, RAIA_EFABRIC, "%s takes no buffer for control messages: %s",
                   wire_provider(wire), wire->ep.lib->strerror((int)-code));
    }
}

raia_status message_open(struct wire *wire)
{
    wire->control_count = wire->remote * (WIRE_CREDITS + WIRE_RESERVE);
    size_t count = (size_t)wire->control_count;
    RAIA_TRY(MEM_NEW(&wire->messages, count + (size_t)wire->world.size));
    RAIA_TRY(MEM_NEW(&wire->control_ops, count));
    RAIA_TRY(endpoint_keep(&wire->ep, wire->messages,
                           (count + (size_t)wire->world.size) * sizeof *wire->messages));
    for (int rank = 0; rank < wire->world.size; rank++) {
        struct wire_peer *peer = &wire->peers[rank];
        peer->bye = (struct wire_op){ .kind = OP_BYE, .peer = peer };
        peer->bye_message = &wire->messages[count + (size_t)rank];
    }
    for (size_t i = 0; i < count; i++) {
        wire->control_ops[i] =
            (struct wire_op){ .kind = OP_CONTROL, .message = &wire->messages[i] };
        post(wire, &wire->control_ops[i]);
    }
    return wire->status == RAIA_OK ? RAIA_OK : fail(wire->status, "%s", wire->text);
}

/* After the endpoint is closed: libfabric holds the buffers until then. */
void message_close(struct wire *wire)
{
    free(wire->messages);
    free(wire->control_ops);
    wire->messages = NULL;
    wire->control_ops = NULL;
}

/* ---- sending ---- */

bool message_send(struct wire *wire, struct wire_peer *peer, const struct wire_message *message)
{
    struct wire_message full = *message;
    full.run = wire->run;
    full.from = (uint32_t)wire->world.rank;
    ssize_t code = fi_tinject(wire->ep.ep, &full, sizeof full, peer->address, control_tag);
    wire->message_count[peer->node] += code == 0;
    if (code == 0)
        return true;
    if (code == -FI_EAGAIN)
        wire->behind = true;
    else
        wire_break(wire, RAIA_EPEER, "cannot reach rank %d: %s: %s", peer->rank,
                   wire_provider(wire), wire->ep.lib->strerror((int)-code));
    return false;
}

static void greet(struct wire *wire, struct wire_peer *peer)
{
    const struct wire_message hello = { .kind = WIRE_HELLO };
    if (message_send(wire, peer, &hello))
        peer->greeting = true;
}

static void give_credit(struct wire *wire, struct wire_peer *peer)
{
    const struct wire_message credit = { .kind = WIRE_CREDIT, .len = (uint64_t)peer->owed };
    if (message_send(wire, peer, &credit))
        peer->owed = 0;
}

/* The last message to a peer; its completion tells that it has left. */
static void part(struct wire *wire, struct wire_peer *peer)
{
    *peer->bye_message = (struct wire_message){ .run = wire->run,
                                                .kind = WIRE_BYE,
                                                .from = (uint32_t)wire->world.rank };
    ssize_t code = fi_tsend(wire->ep.ep, peer->bye_message, sizeof *peer->bye_message,
                            block_desc(wire), peer->address, control_tag, &peer->bye.context);
    peer->parting = code == 0;
    if (code == -FI_EAGAIN)
        wire->behind = true;
    else if (code != 0)
        peer->parting = peer->bye_sent = peer->parted = true; /* it has gone already */
}

/* ---- receiving ---- */

static void on_ready(struct wire *wire, struct wire_peer *peer, const struct wire_message *m)
{
    if (m->turn != peer->turn_in++) {
        wire_break(wire, RAIA_EFABRIC, "%s delivered rank %d's messages out of order",
                   wire_provider(wire), peer->rank);
        return;
    }
    flow_ready(wire, peer, m);
    if (++peer->owed >= WIRE_CREDITS / 2)
        give_credit(wire, peer);
}

static void on_mismatch(struct wire *wire, struct wire_peer *peer, const struct wire_message *m)
{
    struct wire_request *r =
        m->slot < (uint32_t)wire->request_count ? wire->requests[m->slot] : NULL;
    if (r != NULL && r->held && !r->sending && r->peer == peer)
        flow_refuse(wire, r, m->len);
}

static void handle(struct wire *wire, const struct wire_message *m)
{
    if (m->run != wire->run || m->from >= (uint32_t)wire->world.size ||
        !wire->peers[m->from].remote)
        return;
    struct wire_peer *peer = &wire->peers[m->from];
    switch ((enum wire_message_kind)m->kind) {
    case WIRE_HELLO:
        peer->greeted = true;
        break;
    case WIRE_READY:
        on_ready(wire, peer, m);
        break;
    case WIRE_CREDIT:
        peer->credits += (int)m->len;
        flow_push(wire, peer);
        break;
    case WIRE_MISMATCH:
        on_mismatch(wire, peer, m);
        break;
    case WIRE_BYE:
        peer->parted = true;
        break;
    }
}

void message_arrived(struct wire *wire, struct wire_op *op, size_t len)
{
    const struct wire_message message = *op->message;
    post(wire, op);
    if (len == sizeof message)
        handle(wire, &message);
}

void message_push(struct wire *wire)
{
    struct wire_op *op = wire->to_repost;
    wire->to_repost = NULL;
    while (op != NULL) {
        struct wire_op *next = op->next;
        post(wire, op);
        op = next;
    }
    for (int rank = 0; rank < wire->world.size; rank++)
        if (wire->peers[rank].remote && wire->peers[rank].owed >= WIRE_CREDITS / 2)
            give_credit(wire, &wire->peers[rank]);
}

/* ---- all peers at once ---- */

static bool all_greeted(struct wire *wire)
{
    bool all = true;
    for (int rank = 0; rank < wire->world.size; rank++) {
        struct wire_peer *peer = &wire->peers[rank];
        if (peer->remote && !peer->greeting)
            greet(wire, peer);
        all = all && (!peer->remote || (peer->greeting && peer->greeted));
    }
    return all;
}

static raia_status fail_silent(const struct wire *wire)
{
    struct buf ranks = { .max = 512 };
    for (int rank = 0; rank < wire->world.size; rank++)
        if (wire->peers[rank].remote && !wire->peers[rank].greeted)
            buf_printf(&ranks, "%s%d", ranks.len > 0 ? ", " : "", rank);
    raia_status status =
        fail(RAIA_ETIMEDOUT,
             "no greeting over %s from rank %s within %.0f s: see that the nodes reach each "
             "other at these addresses (this one is %s on %s), or name the interface in "
             "NCCL_SOCKET_IFNAME",
             wire_provider(wire), ranks.data != NULL ? ranks.data : "?",
             (double)wire->timeout_ns / 1e9, wire->interface.address, wire->interface.name);
    buf_release(&ranks);
    return status;
}

raia_status message_greet(struct wire *wire, uint64_t deadline)
{
    while (!all_greeted(wire)) {
        flow_progress(wire, WIRE_TICK_MS);
        if (wire->status != RAIA_OK)
            return fail(wire->status, "%s", wire->text);
        RAIA_TRY(control_check(wire->control));
        if (deadline_left_ms(deadline) == 0)
            return fail_silent(wire);
    }
    return RAIA_OK;
}

static bool all_parted(struct wire *wire)
{
    bool all = true;
    for (int rank = 0; rank < wire->world.size; rank++) {
        struct wire_peer *peer = &wire->peers[rank];
        if (peer->remote && !peer->parting)
            part(wire, peer);
        all = all && (!peer->remote || (peer->bye_sent && peer->parted));
    }
    return all;
}

void message_part(struct wire *wire)
{
    uint64_t deadline = deadline_in_ms(WIRE_BYE_MS);
    while (wire->status == RAIA_OK && control_check(wire->control) == RAIA_OK &&
           deadline_left_ms(deadline) > 0 && !all_parted(wire))
        flow_progress(wire, WIRE_TICK_MS);
}
