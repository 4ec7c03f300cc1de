/* Transfers: from the user's call to libfabric and back. */
#include "fabric/wire_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_MS = 1 };

void wire_break(struct wire *wire, raia_status status, const char *format, ...)
{
    if (wire->status != RAIA_OK)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(wire->text, sizeof wire->text, format, args);
    va_end(args);
    wire->status = status;
}

static void append(struct wire_list *list, struct wire_request *r)
{
    r->next = NULL;
    if (list->first == NULL)
        list->last = &list->first;
    *list->last = r;
    list->last = &r->next;
}

static struct wire_request *take_first(struct wire_list *list)
{
    struct wire_request *r = list->first;
    list->first = r->next;
    return r;
}

/* Takes the oldest send of TAG out of the list; NULL when there is none. */
static struct wire_request *take_tag(struct wire_list *list, uint64_t tag)
{
    struct wire_request **at = &list->first;
    while (*at != NULL && (*at)->tag != tag)
        at = &(*at)->next;
    struct wire_request *r = *at;
    if (r == NULL)
        return NULL;
    *at = r->next;
    if (list->last == &r->next)
        list->last = at;
    return r;
}

static void finish(struct wire *wire, struct wire_request *r)
{
    if (!r->done)
        wire->active--;
    r->done = true;
}

/* ---- posting ---- */

/* True when libfabric took the operation; else it is to be tried again, or the wire broke. */
static bool taken(struct wire *wire, const struct wire_request *r, ssize_t code)
{
    if (code == 0)
        return true;
    if (code == -FI_EAGAIN)
        wire->behind = true;
    else
        wire_break(wire, RAIA_EPEER, "%s %zu bytes %s rank %d: %s: %s",
                   r->sending ? "sending" : "receiving", r->len, r->sending ? "to" : "from",
                   r->peer->rank, wire_provider(wire), wire->ep.lib->strerror((int)-code));
    return false;
}

static bool post_send(struct wire *wire, struct wire_request *r)
{
    r->held = taken(
        wire, r,
        fi_tsend(wire->ep.ep, r->data, r->len, r->desc, r->peer->address, r->slot, &r->op.context));
    wire->message_count[r->peer->node] += r->held;
    return r->held;
}

/* The buffer first, then the word that it is there. */
static bool announce(struct wire *wire, struct wire_request *r)
{
    struct wire_peer *peer = r->peer;
    if (!r->held)
        r->held = taken(wire, r,
                        fi_trecv(wire->ep.ep, r->data, r->len, r->desc, FI_ADDR_UNSPEC, r->index, 0,
                                 &r->op.context));
    if (!r->held || peer->credits == 0)
        return false;
    const struct wire_message ready = {
        .kind = WIRE_READY, .tag = r->tag, .len = r->len, .slot = r->index, .turn = peer->turn_out
    };
    if (!message_send(wire, peer, &ready))
        return false;
    peer->turn_out++;
    peer->credits--;
    return true;
}

void flow_push(struct wire *wire, struct wire_peer *peer)
{
    while (peer->to_announce.first != NULL && announce(wire, peer->to_announce.first))
        take_first(&peer->to_announce);
    while (peer->to_send.first != NULL && post_send(wire, peer->to_send.first))
        take_first(&peer->to_send);
}

/* ---- meeting ---- */

void flow_refuse(struct wire *wire, struct wire_request *r, size_t other_len)
{
    r->refused = true;
    r->other_len = other_len;
    finish(wire, r);
}

/* A send has its READY. */
static void meet(struct wire *wire, struct wire_request *r, uint64_t len, uint32_t slot)
{
    r->slot = slot;
    if (len == r->len) {
        append(&r->peer->to_send, r);
        flow_push(wire, r->peer);
        return;
    }
    const struct wire_message mismatch = { .kind = WIRE_MISMATCH, .len = r->len, .slot = slot };
    flow_refuse(wire, r, len);
    /* The receiver waits for this word; should the queue be full now, it ends with the run. */
    if (!message_send(wire, r->peer, &mismatch))
        wire_break(wire, RAIA_EBUG, "rank %d receives %zu bytes where %zu are sent (tag %llu)",
                   r->peer->rank, (size_t)len, r->len, (unsigned long long)r->tag);
}

void flow_ready(struct wire *wire, struct wire_peer *peer, const struct wire_message *message)
{
    struct wire_request *r = take_tag(&peer->sends, message->tag);
    if (r != NULL) {
        meet(wire, r, message->len, message->slot);
        return;
    }
    struct wire_ready *ready;
    raia_status status = pool_ready(wire, &ready);
    if (status != RAIA_OK) {
        wire_break(wire, status, "%s", raia_error());
        return;
    }
    *ready = (struct wire_ready){ .tag = message->tag, .len = message->len, .slot = message->slot };
    if (peer->ready == NULL)
        peer->ready_last = &peer->ready;
    *peer->ready_last = ready;
    peer->ready_last = &ready->next;
}

/* The oldest kept READY of the send's tag meets it; false when none has come. */
static bool meet_kept(struct wire *wire, struct wire_request *r)
{
    struct wire_peer *peer = r->peer;
    struct wire_ready **at = &peer->ready;
    while (*at != NULL && (*at)->tag != r->tag)
        at = &(*at)->next;
    struct wire_ready *ready = *at;
    if (ready == NULL)
        return false;
    *at = ready->next;
    if (peer->ready_last == &ready->next)
        peer->ready_last = at;
    ready->next = wire->idle_ready;
    wire->idle_ready = ready;
    meet(wire, r, ready->len, ready->slot);
    return true;
}

/* ---- start and end ---- */

static raia_status describe(struct wire *wire, struct wire_request *r)
{
    if (!wire->ep.local_mr || r->len == 0)
        return RAIA_OK;
    const struct wire_region *region = endpoint_region(&wire->ep, r->data, r->len);
    if (region == NULL)
        RAIA_TRY(endpoint_register(&wire->ep, r->data, r->len, &r->mr));
    r->desc = fi_mr_desc(region != NULL ? region->mr : r->mr);
    return RAIA_OK;
}

raia_status flow_start(struct wire *wire, struct wire_peer *peer, bool sending, uint64_t tag,
                       void *data, size_t len, struct wire_request **out)
{
    struct wire_request *r;
    RAIA_TRY(pool_request(wire, &r));
    r->op = (struct wire_op){ .kind = OP_DATA, .request = r };
    r->peer = peer;
    r->sending = sending;
    r->tag = tag;
    r->data = data;
    r->len = len;
    raia_status status = describe(wire, r);
    if (status != RAIA_OK) {
        flow_free(wire, r);
        return status;
    }
    wire->active++;
    if (!sending) {
        append(&peer->to_announce, r);
        flow_push(wire, peer);
    } else if (!meet_kept(wire, r)) {
        append(&peer->sends, r);
    }
    *out = r;
    return RAIA_OK;
}

void flow_free(struct wire *wire, struct wire_request *r)
{
    if (r->held)
        return; /* a refused receive: its tag and operation stay taken until the end */
    if (r->mr != NULL)
        fi_close(&r->mr->fid);
    r->mr = NULL;
    r->next = wire->idle_requests;
    wire->idle_requests = r;
}

/* ---- completions ---- */

static void data_done(struct wire *wire, struct wire_request *r, size_t len)
{
    r->held = false;
    if (!r->sending && len != r->len) {
        wire_break(wire, RAIA_EPEER, "rank %d sent %zu bytes where it had agreed to %zu",
                   r->peer->rank, len, r->len);
        return;
    }
    (r->sending ? wire->sent : wire->received)[r->peer->node] += r->len;
    finish(wire, r);
}

static void complete(struct wire *wire, const struct fi_cq_tagged_entry *entry)
{
    struct wire_op *op = entry->op_context;
    if (op == NULL) /* of an injected message, which some providers tell of */
        return;
    if (op->kind == OP_DATA)
        data_done(wire, op->request, entry->len);
    else if (op->kind == OP_CONTROL)
        message_arrived(wire, op, entry->len);
    else
        op->peer->bye_sent = true;
}

static void complete_error(struct wire *wire)
{
    struct fi_cq_err_entry error = { 0 };
    char text[160];
    if (fi_cq_readerr(wire->ep.cq, &error, 0) != 1)
        return;
    const char *detail =
        fi_cq_strerror(wire->ep.cq, error.prov_errno, error.err_data, text, sizeof text);
    const char *reason = wire->ep.lib->strerror(error.err);
    const struct wire_op *op = error.op_context;
    if (op != NULL && op->kind == OP_DATA)
        wire_break(wire, RAIA_EPEER, "%s rank %d: %s: %s%s%s%s",
                   op->request->sending ? "sending to" : "receiving from", op->request->peer->rank,
                   wire_provider(wire), reason, detail != NULL ? " (" : "",
                   detail != NULL ? detail : "", detail != NULL ? ")" : "");
    else if (op != NULL && op->kind == OP_BYE)
        op->peer->bye_sent = op->peer->parted = true;
    else
        wire_break(wire, RAIA_EPEER, "the connection to a peer failed: %s: %s", wire_provider(wire),
                   reason);
}

static void read_queue(struct wire *wire, int ms)
{
    struct fi_cq_tagged_entry entry[WIRE_COMPLETIONS];
    for (;;) {
        ssize_t n = endpoint_read(&wire->ep, entry, WIRE_COMPLETIONS, ms);
        ms = 0;
        if (n == -FI_EAVAIL)
            complete_error(wire);
        else if (n < 0 && n != -FI_EAGAIN)
            wire_break(wire, RAIA_EFABRIC, "%s: completion queue: %s", wire_provider(wire),
                       wire->ep.lib->strerror((int)-n));
        for (ssize_t i = 0; i < n; i++)
            complete(wire, &entry[i]);
        if (n != WIRE_COMPLETIONS)
            return;
    }
}

void flow_progress(struct wire *wire, int ms)
{
    if (wire->status != RAIA_OK)
        return;
    /* Room in the endpoint's queue, or a connection that comes up, wakes nobody. */
    read_queue(wire, wire->behind && ms > RETRY_MS ? RETRY_MS : ms);
    if (!wire->behind || wire->status != RAIA_OK)
        return;
    wire->behind = false;
    message_push(wire);
    for (int rank = 0; rank < wire->world.size; rank++)
        if (wire->peers[rank].remote)
            flow_push(wire, &wire->peers[rank]);
}
