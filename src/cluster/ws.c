#include "cluster/ws.h"

#include "cluster/limits.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wslay/wslay.h>

enum { TURN_BYTES = 1 << 20, CLOSE_WAIT_MS = 2000 };

struct ws {
    uv_poll_t poll;
    uv_timer_t timer;
    int handles; /* libuv handles that are not closed yet */
    struct ws_config config;
    wslay_event_context_ptr frames;
    char *extra;
    size_t extra_at;
    size_t turn;       /* bytes read in this turn of the loop */
    uint64_t heard_ns; /* when the last byte came */
    uint64_t taken_ns; /* when the peer last took a byte, or had none to take */
    uint64_t close_ns; /* when the close frame was sent */
    int close_code;    /* wanted; 0: none */
    int end_code;      /* what `closed` will say */
    bool hold, busy, dying;
};

static ssize_t raw_read(struct ws *ws, void *data, size_t len)
{
    if (ws->config.curl == NULL)
        return recv(ws->config.fd, data, len, 0);
    size_t got = 0;
    CURLcode code = curl_easy_recv(ws->config.curl, data, len, &got);
    if (code == CURLE_OK)
        return (ssize_t)got;
    errno = code == CURLE_AGAIN ? EAGAIN : ECONNRESET;
    return -1;
}

static ssize_t raw_write(struct ws *ws, const void *data, size_t len)
{
    if (ws->config.curl == NULL)
        return send(ws->config.fd, data, len, MSG_NOSIGNAL);
    size_t sent = 0;
    CURLcode code = curl_easy_send(ws->config.curl, data, len, &sent);
    if (code == CURLE_OK)
        return (ssize_t)sent;
    errno = code == CURLE_AGAIN ? EAGAIN : ECONNRESET;
    return -1;
}

static ssize_t on_read(wslay_event_context_ptr frames, uint8_t *data, size_t len, int flags,
                       void *self)
{
    (void)flags;
    struct ws *ws = self;
    size_t left = ws->config.extra_len - ws->extra_at;
    if (left > 0) {
        size_t n = left < len ? left : len;
        memcpy(data, ws->extra + ws->extra_at, n);
        ws->extra_at += n;
        return (ssize_t)n;
    }
    /* One busy peer must not starve the loop. With TLS the library may hold bytes that poll cannot
     * see, so that there the turn goes on until it is empty. */
    bool full = ws->turn >= TURN_BYTES && ws->config.curl == NULL;
    ssize_t n = full || ws->hold || ws->dying ? -1 : raw_read(ws, data, len);
    if (full || ws->hold || ws->dying || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        wslay_event_set_error(frames, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    if (n <= 0) {
        wslay_event_set_error(frames, WSLAY_ERR_CALLBACK_FAILURE);
        return -1;
    }
    ws->turn += (size_t)n;
    ws->heard_ns = clock_ns();
    return n;
}

static ssize_t on_write(wslay_event_context_ptr frames, const uint8_t *data, size_t len, int flags,
                        void *self)
{
    (void)flags;
    struct ws *ws = self;
    ssize_t n = raw_write(ws, data, len);
    if (n < 0) {
        bool again = errno == EAGAIN || errno == EINTR;
        wslay_event_set_error(frames, again ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
        return -1;
    }
    ws->taken_ns = clock_ns();
    return n;
}

static int on_mask(wslay_event_context_ptr frames, uint8_t *data, size_t len, void *self)
{
    (void)frames;
    (void)self;
    return getrandom(data, len, 0) == (ssize_t)len ? 0 : -1;
}

static void on_message(wslay_event_context_ptr frames,
                       const struct wslay_event_on_msg_recv_arg *arg, void *self)
{
    (void)frames;
    struct ws *ws = self;
    if (arg->opcode == WSLAY_CONNECTION_CLOSE)
        ws->end_code = arg->status_code != 0 ? arg->status_code : WSLAY_CODE_NO_STATUS_RCVD;
    if (wslay_is_ctrl_frame(arg->opcode) || ws->dying)
        return;
    ws->config.events->message(ws->config.self, arg->opcode == WSLAY_TEXT_FRAME, arg->msg,
                               arg->msg_length);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct ws *ws = handle->data;
    if (--ws->handles > 0)
        return;
    if (ws->config.release != NULL)
        ws->config.release(ws->config.release_arg);
    else if (ws->config.curl == NULL)
        close(ws->config.fd);
    if (ws->config.curl != NULL)
        curl_easy_cleanup(ws->config.curl);
    ws->config.events->closed(ws->config.self, ws->end_code);
    wslay_event_context_free(ws->frames);
    free(ws->extra);
    free(ws);
}

static void die(struct ws *ws)
{
    if (ws->dying)
        return;
    ws->dying = true;
    uv_close((uv_handle_t *)&ws->poll, on_handle_closed);
    uv_close((uv_handle_t *)&ws->timer, on_handle_closed);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void want(struct ws *ws)
{
    int events = ws->hold ? 0 : UV_READABLE;
    if (wslay_event_want_write(ws->frames))
        events |= UV_WRITABLE;
    if (events != 0)
        uv_poll_start(&ws->poll, events, on_poll);
    else
        uv_poll_stop(&ws->poll);
}

/* Sends what is queued; the close frame last, since wslay would let it overtake the messages. */
static bool flush(struct ws *ws)
{
    if (wslay_event_want_write(ws->frames) && wslay_event_send(ws->frames) != 0)
        return false;
    if (ws->close_code != 0 && ws->close_ns == 0 &&
        wslay_event_get_queued_msg_count(ws->frames) == 0) {
        ws->close_ns = clock_ns();
        wslay_event_queue_close(ws->frames, (uint16_t)ws->close_code, NULL, 0);
        return wslay_event_send(ws->frames) == 0;
    }
    return true;
}

static void turn(struct ws *ws, bool readable)
{
    if (ws->dying || ws->busy)
        return;
    ws->busy = true;
    ws->turn = 0;
    bool alive = true, had = wslay_event_get_queued_msg_count(ws->frames) > 0;
    if (readable)
        alive = wslay_event_recv(ws->frames) == 0;
    alive = alive && flush(ws);
    if (alive && had && ws->config.events->drained != NULL &&
        wslay_event_get_queued_msg_count(ws->frames) == 0) {
        ws->config.events->drained(ws->config.self);
        alive = flush(ws);
    }
    ws->busy = false;
    if (!alive || (!wslay_event_want_read(ws->frames) && !wslay_event_want_write(ws->frames)))
        die(ws);
    if (!ws->dying)
        want(ws);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct ws *ws = poll->data;
    if (status < 0)
        die(ws);
    else
        turn(ws, (events & UV_READABLE) != 0);
}

static uint64_t since_ms(uint64_t then_ns)
{
    uint64_t now = clock_ns();
    return now > then_ns ? (now - then_ns) / 1000000 : 0;
}

static void on_beat(uv_timer_t *timer)
{
    struct ws *ws = timer->data;
    bool queued = wslay_event_get_queued_msg_count(ws->frames) > 0;
    if (!queued)
        ws->taken_ns = clock_ns();
    bool silent =
        ws->config.silence_ms > 0 && !ws->hold && since_ms(ws->heard_ns) > ws->config.silence_ms;
    bool stalled = queued && since_ms(ws->taken_ns) > WRITE_STALL_MS;
    bool unanswered = ws->close_ns != 0 && since_ms(ws->close_ns) > CLOSE_WAIT_MS;
    if (silent || stalled || unanswered) {
        die(ws);
        return;
    }
    if (ws->config.beat_ms > 0 && !queued && ws->close_code == 0) {
        struct wslay_event_msg ping = { .opcode = WSLAY_PING };
        wslay_event_queue_msg(ws->frames, &ping);
    }
    turn(ws, ws->extra_at < ws->config.extra_len);
}

static raia_status start_handles(struct ws *ws)
{
    int code = uv_poll_init(ws->config.loop, &ws->poll, ws->config.fd);
    if (code < 0)
        return fail(RAIA_EIO, "cannot watch a socket: %s", uv_strerror(code));
    uv_timer_init(ws->config.loop, &ws->timer);
    ws->handles = 2;
    ws->poll.data = ws->timer.data = ws;
    unsigned every = ws->config.beat_ms > 0 ? ws->config.beat_ms : BEAT_MS;
    /* The first turn comes at once: the peer's first frame may already be in `extra`. */
    uv_timer_start(&ws->timer, on_beat, ws->config.extra_len > 0 ? 0 : every, every);
    want(ws);
    return RAIA_OK;
}

raia_status ws_open(struct ws **out, const struct ws_config *config)
{
    struct ws *ws;
    RAIA_TRY(MEM_NEW(&ws, 1));
    ws->config = *config;
    ws->end_code = WS_LOST;
    ws->heard_ns = ws->taken_ns = clock_ns();
    struct wslay_event_callbacks callbacks = { .recv_callback = on_read,
                                               .send_callback = on_write,
                                               .genmask_callback = on_mask,
                                               .on_msg_recv_callback = on_message };
    int code = config->client ? wslay_event_context_client_init(&ws->frames, &callbacks, ws)
                              : wslay_event_context_server_init(&ws->frames, &callbacks, ws);
    raia_status status = code == 0 ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory: a WebSocket");
    if (status == RAIA_OK && config->extra_len > 0) {
        status = MEM_NEW(&ws->extra, config->extra_len);
        if (status == RAIA_OK)
            memcpy(ws->extra, config->extra, config->extra_len);
    }
    if (status == RAIA_OK) {
        wslay_event_config_set_max_recv_msg_length(ws->frames, config->max_message);
        status = start_handles(ws);
    }
    if (status != RAIA_OK) {
        if (code == 0)
            wslay_event_context_free(ws->frames);
        free(ws->extra);
        free(ws);
        return status;
    }
    *out = ws;
    return RAIA_OK;
}

raia_status ws_send(struct ws *ws, bool text, const void *data, size_t len)
{
    if (ws->dying || ws->close_code != 0)
        return fail(RAIA_EPEER, "the connection is closing");
    struct wslay_event_msg message = { .opcode = text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME,
                                       .msg = data,
                                       .msg_length = len };
    if (wslay_event_queue_msg(ws->frames, &message) != 0)
        return fail(RAIA_EPEER, "the connection takes no more messages");
    if (!ws->busy)
        turn(ws, false);
    return RAIA_OK;
}

size_t ws_queued(const struct ws *ws)
{
    return wslay_event_get_queued_msg_length(ws->frames);
}

void ws_hold(struct ws *ws, bool hold)
{
    if (ws->hold == hold || ws->dying)
        return;
    ws->hold = hold;
    ws->heard_ns = clock_ns();
    want(ws);
}

void ws_close(struct ws *ws, int code)
{
    if (ws->dying || ws->close_code != 0)
        return;
    ws->close_code = code;
    if (!ws->busy)
        turn(ws, false);
}

void ws_drop(struct ws *ws)
{
    ws->end_code = WS_LOST;
    die(ws);
}
