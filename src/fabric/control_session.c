/* What each frame of a rank means to the driver. */
#include "fabric/control_priv.h"

#include <stdlib.h>
#include <string.h>

enum { WAITS_MAX = 256, STRANGERS_LOGGED = 8 };

static void reply(struct control_server *server, struct conn *conn, uint64_t id, raia_status status,
                  const void *body, size_t len)
{
    const struct frame frame = { FRAME_REPLY, status, id, body, len };
    conn_send(server, conn, &frame);
}

/* Answers with this thread's last failure. */
static void reply_failed(struct control_server *server, struct conn *conn, uint64_t id,
                         raia_status status)
{
    const char *text = raia_error();
    reply(server, conn, id, status, text, strlen(text));
}

static raia_status on_hello(struct control_server *server, struct conn *conn,
                            const struct frame *frame)
{
    struct frame_hello hello;
    RAIA_TRY(frame_read_hello(frame, &hello));
    raia_status status = RAIA_OK;
    if (conn->rank >= 0)
        return fail(RAIA_EFORMAT, "a second hello");
    if (!frame_token_equal(hello.token, hello.token_len, server->token, strlen(server->token)))
        status = fail(RAIA_EREFUSED, "the control token is not this run's");
    else if (hello.rank >= (uint32_t)server->size)
        status = fail(RAIA_EREFUSED, "rank %u is not one of this run's %d ranks", hello.rank,
                      server->size);
    else if (server->ranks[hello.rank] != NULL)
        status = fail(RAIA_EREFUSED, "rank %u is connected already", hello.rank);
    if (status != RAIA_OK) {
        reply_failed(server, conn, frame->id, status);
        return status;
    }
    conn->rank = (int)hello.rank;
    server->ranks[conn->rank] = conn;
    reply(server, conn, frame->id, RAIA_OK, NULL, 0);
    session_tell_abort(server, conn);
    return RAIA_OK;
}

/* The array of a gather's values, all of which are there. */
static raia_status join_parts(const struct control_server *server, const struct wait *wait,
                              struct buf *out)
{
    char key[FRAME_KEY_MAX + 16];
    for (int rank = 0; rank < wait->size; rank++) {
        const void *data = NULL;
        size_t len = 0;
        snprintf(key, sizeof key, "%s/%d", wait->key, rank);
        store_get(server, key, &data, &len);
        RAIA_TRY(buf_append(out, rank == 0 ? "[" : ",", 1));
        RAIA_TRY(buf_append(out, data, len));
    }
    return buf_append(out, "]", 1);
}

static void answer_gather(struct control_server *server, struct conn *conn, const struct wait *wait)
{
    struct buf all = { .max = FRAME_REPLY_MAX };
    raia_status status = join_parts(server, wait, &all);
    if (status == RAIA_OK)
        reply(server, conn, wait->id, RAIA_OK, all.data, all.len);
    else
        reply_failed(server, conn, wait->id, status);
    buf_release(&all);
}

/* Answers the request when what it waits for is there. */
static bool answer(struct control_server *server, struct conn *conn, struct wait *wait)
{
    const void *data;
    size_t len;
    if (wait->part < 0) {
        if (!store_get(server, wait->key, &data, &len))
            return false;
        reply(server, conn, wait->id, RAIA_OK, data, len);
        return true;
    }
    char key[FRAME_KEY_MAX + 16];
    for (; wait->part < wait->size; wait->part++) {
        snprintf(key, sizeof key, "%s/%d", wait->key, wait->part);
        if (!store_get(server, key, &data, &len))
            return false;
    }
    answer_gather(server, conn, wait);
    return true;
}

static void answer_waits(struct control_server *server)
{
    for (struct conn *conn = server->conns; conn != NULL; conn = conn->next) {
        for (struct wait **at = &conn->waits; *at != NULL;) {
            struct wait *wait = *at;
            if (!answer(server, conn, wait)) {
                at = &wait->next;
                continue;
            }
            *at = wait->next;
            conn->wait_count--;
            free(wait);
        }
    }
}

static raia_status on_put(struct control_server *server, struct conn *conn,
                          const struct frame *frame)
{
    struct frame_entry entry;
    RAIA_TRY(frame_read_entry(frame, &entry));
    raia_status status = store_put(server, entry.key, entry.data, entry.len);
    if (status != RAIA_OK) {
        reply_failed(server, conn, frame->id, status);
        return RAIA_OK;
    }
    reply(server, conn, frame->id, RAIA_OK, NULL, 0);
    answer_waits(server);
    return RAIA_OK;
}

static raia_status on_get(struct control_server *server, struct conn *conn,
                          const struct frame *frame)
{
    struct frame_entry entry;
    RAIA_TRY(frame_read_entry(frame, &entry));
    if (frame->type == FRAME_GATHER && (entry.offset == 0 || entry.offset > (uint64_t)server->size))
        return fail(RAIA_EFORMAT, "gather of %llu ranks, this server takes 1 to %d",
                    (unsigned long long)entry.offset, server->size);
    struct wait *wait;
    RAIA_TRY(MEM_NEW(&wait, 1));
    wait->id = frame->id;
    wait->part = frame->type == FRAME_GATHER ? 0 : -1;
    wait->size = (int)entry.offset;
    memcpy(wait->key, entry.key, sizeof wait->key);
    if (answer(server, conn, wait)) {
        free(wait);
        return RAIA_OK;
    }
    if (frame->type == FRAME_PEEK || conn->wait_count >= WAITS_MAX) {
        raia_status status =
            frame->type == FRAME_PEEK
                ? fail(RAIA_ENOTFOUND, "control key '%s' has not been put", entry.key)
                : fail(RAIA_EINVAL, "more than %d control keys are waited for", WAITS_MAX);
        reply_failed(server, conn, frame->id, status);
        free(wait);
        return RAIA_OK;
    }
    wait->next = conn->waits;
    conn->waits = wait;
    conn->wait_count++;
    return RAIA_OK;
}

static raia_status on_event(struct control_server *server, struct conn *conn,
                            const struct frame *frame)
{
    json_t *event;
    RAIA_TRY(json_parse((const char *)frame->body, frame->len, FRAME_EVENT_MAX, "event", &event));
    if (server->callbacks.event != NULL)
        server->callbacks.event(server->callbacks.self, conn->rank, event);
    json_decref(event);
    return RAIA_OK;
}

static raia_status on_chunk(struct control_server *server, struct conn *conn,
                            const struct frame *frame)
{
    struct frame_entry entry;
    RAIA_TRY(frame_read_entry(frame, &entry));
    raia_status status;
    if (!frame_path_is_safe(entry.key))
        status = fail(RAIA_EINVAL, "'%s' is not a relative path of plain components", entry.key);
    else if (server->callbacks.chunk == NULL)
        status = fail(RAIA_EUNSUPPORTED, "this driver takes no files ('%s')", entry.key);
    else
        status = server->callbacks.chunk(server->callbacks.self, conn->rank, entry.key,
                                         entry.offset, entry.data, entry.len);
    if (status == RAIA_OK)
        reply(server, conn, frame->id, RAIA_OK, NULL, 0);
    else
        reply_failed(server, conn, frame->id, status);
    return RAIA_OK;
}

static raia_status on_bye(struct control_server *server, struct conn *conn,
                          const struct frame *frame)
{
    (void)server;
    (void)frame;
    conn->clean = true;
    return RAIA_OK;
}

static raia_status (*const handlers[FRAME_TYPE_COUNT])(struct control_server *, struct conn *,
                                                       const struct frame *) = {
    [FRAME_HELLO] = on_hello, [FRAME_PUT] = on_put,    [FRAME_GET] = on_get,
    [FRAME_PEEK] = on_get,    [FRAME_GATHER] = on_get, [FRAME_EVENT] = on_event,
    [FRAME_CHUNK] = on_chunk, [FRAME_BYE] = on_bye,
};

raia_status session_frame(struct control_server *server, struct conn *conn,
                          const struct frame *frame)
{
    raia_status status = conn->rank < 0 && frame->type != FRAME_HELLO
                             ? fail(RAIA_EFORMAT, "no hello")
                             : handlers[frame->type](server, conn, frame);
    if (status != RAIA_OK && conn->rank < 0) {
        if (server->strangers++ < STRANGERS_LOGGED)
            log_warn("control: dropped a connection: %s", raia_error());
    } else if (status != RAIA_OK) {
        log_warn("control: dropped rank %d: %s", conn->rank, raia_error());
    }
    return status;
}

void session_tell_abort(struct control_server *server, struct conn *conn)
{
    if (conn->rank < 0 || conn->told || conn->dead)
        return;
    pthread_mutex_lock(&server->lock);
    const char *reason = server->reason; /* set once, freed after the thread has ended */
    pthread_mutex_unlock(&server->lock);
    if (reason == NULL)
        return;
    conn->told = true;
    const struct frame frame = { FRAME_ABORT, RAIA_EPEER, 0, (const uint8_t *)reason,
                                 strlen(reason) };
    conn_send(server, conn, &frame);
}

void session_release(struct conn *conn)
{
    while (conn->waits != NULL) {
        struct wait *wait = conn->waits;
        conn->waits = wait->next;
        free(wait);
    }
}
