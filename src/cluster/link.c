#include "cluster/link.h"

#include "cluster/limits.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_HEADER = 16, ACK_BYTES = 64 << 10, ACK_MS = 50 };

struct link_message {
    struct link_message *next;
    uint64_t seq;
    bool text;
    size_t len;
    char data[];
};

static void drop_first(struct link *link)
{
    struct link_message *m = link->first;
    link->first = m->next;
    if (link->first == NULL)
        link->last = NULL;
    link->bytes -= m->len;
    free(m);
}

static void tell_level(struct link *link)
{
    bool high = link->high ? link->bytes > LINK_LOW : link->bytes > LINK_HIGH;
    if (high == link->high)
        return;
    link->high = high;
    if (link->level != NULL)
        link->level(link->self, high);
}

static void acknowledged(struct link *link, uint64_t seq)
{
    while (link->first != NULL && link->first->seq <= seq)
        drop_first(link);
    tell_level(link);
}

static void transmit(struct link *link, const struct link_message *m)
{
    if (link->ws != NULL && ws_send(link->ws, m->text, m->data, m->len) != RAIA_OK)
        ws_drop(link->ws);
}

static void enqueue(struct link *link, struct link_message *m)
{
    if (link->last != NULL)
        link->last->next = m;
    else
        link->first = m;
    link->last = m;
    link->bytes += m->len;
    if (link->bytes > LIMIT_LINK) {
        link->overflow = true;
        if (link->ws != NULL)
            ws_drop(link->ws);
        return;
    }
    transmit(link, m);
    tell_level(link);
}

static struct link_message *new_message(struct link *link, bool text, size_t len)
{
    struct link_message *m = link->overflow ? NULL : calloc(1, sizeof *m + len);
    if (m == NULL) {
        /* A numbered stream with a hole is worse than none. */
        link->overflow = true;
        return NULL;
    }
    m->seq = ++link->sent_seq;
    m->text = text;
    m->len = len;
    return m;
}

void link_send(struct link *link, json_t *message)
{
    json_object_set_new(message, "seq", json_integer((json_int_t)link->sent_seq + 1));
    char *text = json_dumps(message, JSON_COMPACT);
    json_decref(message);
    struct link_message *m = text == NULL ? NULL : new_message(link, true, strlen(text));
    if (m != NULL) {
        memcpy(m->data, text, m->len);
        enqueue(link, m);
    }
    free(text);
}

void link_send_log(struct link *link, uint64_t proc, const void *text, size_t len)
{
    struct link_message *m = new_message(link, false, LOG_HEADER + len);
    if (m == NULL)
        return;
    uint64_t header[2] = { htole64(m->seq), htole64(proc) };
    memcpy(m->data, header, LOG_HEADER);
    memcpy(m->data + LOG_HEADER, text, len);
    enqueue(link, m);
}

static void tell(struct link *link)
{
    if (link->ws == NULL || link->told_seq == link->seen_seq)
        return;
    char text[64];
    int len = snprintf(text, sizeof text, "{\"type\":\"ack\",\"seen\":%llu}",
                       (unsigned long long)link->seen_seq);
    link->told_seq = link->seen_seq;
    link->untold = 0;
    if (ws_send(link->ws, true, text, (size_t)len) != RAIA_OK)
        ws_drop(link->ws);
}

static void on_ack_timer(uv_timer_t *timer)
{
    struct link *link = timer->data;
    link->ticking = false;
    tell(link);
}

/* True when SEQ is the next one; an older one was seen before a reconnect. */
static bool take(struct link *link, uint64_t seq, size_t len)
{
    if (seq != link->seen_seq + 1)
        return false;
    link->seen_seq = seq;
    link->untold += len;
    if (link->untold >= ACK_BYTES)
        tell(link);
    if (!link->ticking && link->told_seq != link->seen_seq) {
        link->ticking = true;
        uv_timer_start(&link->ack_timer, on_ack_timer, ACK_MS, 0);
    }
    return true;
}

static raia_status receive_log(struct link *link, const char *data, size_t len)
{
    uint64_t header[2];
    if (len < LOG_HEADER)
        return fail(RAIA_EFORMAT, "a log frame of %zu bytes", len);
    memcpy(header, data, LOG_HEADER);
    uint64_t seq = le64toh(header[0]);
    if (seq > link->seen_seq + 1)
        return fail(RAIA_EFORMAT, "a log frame numbered %llu after %llu", (unsigned long long)seq,
                    (unsigned long long)link->seen_seq);
    if (take(link, seq, len) && link->log != NULL)
        link->log(link->self, le64toh(header[1]), data + LOG_HEADER, len - LOG_HEADER);
    return RAIA_OK;
}

static raia_status receive_object(struct link *link, json_t *object, size_t len)
{
    const char *type;
    int64_t seq;
    RAIA_TRY(json_get_string(object, "message", "type", &type));
    if (strcmp(type, "ack") == 0) {
        RAIA_TRY(json_get_i64(object, "acknowledgement", "seen", 0, INT64_MAX, &seq));
        if ((uint64_t)seq > link->sent_seq)
            return fail(RAIA_EFORMAT, "an acknowledgement of a message that was never sent");
        acknowledged(link, (uint64_t)seq);
        return RAIA_OK;
    }
    RAIA_TRY(json_get_i64(object, "message", "seq", 1, INT64_MAX, &seq));
    if ((uint64_t)seq > link->seen_seq + 1)
        return fail(RAIA_EFORMAT, "message %lld came after %llu", (long long)seq,
                    (unsigned long long)link->seen_seq);
    if (take(link, (uint64_t)seq, len))
        link->message(link->self, object);
    return RAIA_OK;
}

raia_status link_receive(struct link *link, bool text, const void *data, size_t len)
{
    if (!text)
        return receive_log(link, data, len);
    json_t *object;
    RAIA_TRY(json_parse(data, len, LIMIT_MESSAGE, "message", &object));
    raia_status status = receive_object(link, object, len);
    json_decref(object);
    return status;
}

void link_init(struct link *link, uv_loop_t *loop)
{
    uv_timer_init(loop, &link->ack_timer);
    link->ack_timer.data = link;
}

void link_attach(struct link *link, struct ws *ws, uint64_t peer_seen)
{
    link->ws = ws;
    acknowledged(link, peer_seen);
    for (const struct link_message *m = link->first; m != NULL; m = m->next)
        transmit(link, m);
}

void link_detach(struct link *link)
{
    link->ws = NULL;
}

void link_reset(struct link *link)
{
    while (link->first != NULL)
        drop_first(link);
    link->sent_seq = link->seen_seq = link->told_seq = 0;
    link->untold = 0;
    link->overflow = false;
    tell_level(link);
}

bool link_settled(const struct link *link)
{
    return link->first == NULL;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;
    link_reset(link);
    link->closed(link);
}

void link_close(struct link *link, void (*closed)(struct link *link))
{
    link->ws = NULL;
    link->level = NULL;
    link->closed = closed;
    uv_close((uv_handle_t *)&link->ack_timer, on_timer_closed);
}
