/* A rank's end of the control channel. A thread reads replies and the abort, so that a rank that
 * computes learns of it by control_check; callers send under a lock of their own and wait for their
 * reply. */
#include "fabric/control_frame.h"
#include "fabric/control_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    REPLY_MS = 120000, /* a put or chunk that is not answered for so long has failed */
    GOODBYE_MS = 2000, /* for the driver to take the goodbye */
    CHUNKS_AHEAD = 4,  /* pieces of a file sent before the first is acknowledged */
};

/* A request that waits for its reply; lives on its caller's stack. */
struct call {
    struct call *next;
    uint64_t id;
    bool done;
    raia_status status;
    char *body; /* malloc'd, NUL-terminated */
    size_t len;
};

struct control {
    int fd;
    int rank;
    char whom[320]; /* "the driver at host:port" */
    pthread_t reader;
    pthread_mutex_t send_lock;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    struct call *calls;
    uint64_t last_id;
    bool reader_ended;
    atomic_bool stopped; /* the run is over for this rank; reason is set before */
    char reason[2048];
};

static void stop(struct control *control, const char *reason)
{
    pthread_mutex_lock(&control->lock);
    if (!atomic_load(&control->stopped)) {
        snprintf(control->reason, sizeof control->reason, "%s", reason);
        atomic_store(&control->stopped, true);
    }
    pthread_cond_broadcast(&control->changed);
    pthread_mutex_unlock(&control->lock);
}

raia_status control_check(struct control *control)
{
    if (!atomic_load_explicit(&control->stopped, memory_order_acquire))
        return RAIA_OK;
    return fail(RAIA_EPEER, "%s", control->reason);
}

/* ---- the reader ---- */

/* Gives the reply to its call; takes BODY. */
static void finish_call(struct control *control, const struct frame *frame, char *body)
{
    pthread_mutex_lock(&control->lock);
    struct call *call = control->calls;
    while (call != NULL && call->id != frame->id)
        call = call->next;
    if (call != NULL && !call->done) {
        call->status = frame->status;
        call->body = body;
        call->len = frame->len;
        call->done = true;
        body = NULL;
        pthread_cond_broadcast(&control->changed);
    }
    pthread_mutex_unlock(&control->lock);
    free(body); /* its caller has given up */
}

static raia_status read_frame(struct control *control, uint64_t deadline, struct frame *frame,
                              char **body)
{
    uint8_t head[FRAME_HEAD];
    RAIA_TRY(net_recv(control->fd, head, sizeof head, deadline, control->whom));
    RAIA_TRY(frame_read_head(head, 's', frame));
    RAIA_TRY(mem_alloc((void **)body, frame->len + 1, 1));
    raia_status status = net_recv(control->fd, *body, frame->len, deadline, control->whom);
    if (status != RAIA_OK)
        free(*body);
    return status;
}

static void *read_frames(void *arg)
{
    struct control *control = arg;
    struct frame frame;
    char *body;
    while (read_frame(control, 0, &frame, &body) == RAIA_OK) {
        if (frame.type == FRAME_REPLY) {
            finish_call(control, &frame, body);
        } else {
            stop(control, body);
            free(body);
        }
    }
    pthread_mutex_lock(&control->lock);
    control->reader_ended = true;
    pthread_mutex_unlock(&control->lock);
    stop(control, raia_error());
    return NULL;
}

/* ---- requests ---- */

static raia_status send_frame(struct control *control, const struct frame *frame,
                              const void *prefix, size_t prefix_len, uint64_t deadline)
{
    uint8_t head[FRAME_HEAD + 10 + FRAME_KEY_MAX];
    struct frame whole = *frame;
    whole.len = prefix_len + frame->len;
    frame_write_head(head, &whole);
    if (prefix_len > 0)
        memcpy(head + FRAME_HEAD, prefix, prefix_len);
    pthread_mutex_lock(&control->send_lock);
    raia_status status = control_check(control);
    if (status == RAIA_OK) {
        status = net_send(control->fd, head, FRAME_HEAD + prefix_len, deadline, control->whom);
        if (status == RAIA_OK && frame->len > 0)
            status = net_send(control->fd, frame->body, frame->len, deadline, control->whom);
        if (status != RAIA_OK)
            stop(control, raia_error()); /* the stream may end inside a frame */
    }
    pthread_mutex_unlock(&control->send_lock);
    return status;
}

static void call_add(struct control *control, struct call *call)
{
    pthread_mutex_lock(&control->lock);
    *call = (struct call){ .next = control->calls, .id = ++control->last_id };
    control->calls = call;
    pthread_mutex_unlock(&control->lock);
}

static void call_remove(struct control *control, const struct call *call)
{
    struct call **at = &control->calls;
    while (*at != NULL && *at != call)
        at = &(*at)->next;
    if (*at != NULL)
        *at = call->next;
}

static bool wait_changed(struct control *control, uint64_t deadline)
{
    if (deadline == 0)
        return pthread_cond_wait(&control->changed, &control->lock) == 0;
    const struct timespec until = { (time_t)(deadline / 1000000000U),
                                    (long)(deadline % 1000000000U) };
    return pthread_cond_timedwait(&control->changed, &control->lock, &until) != ETIMEDOUT;
}

/* Waits for the call's reply and forgets the call. Its body is the caller's when the status is
 * RAIA_OK. */
static raia_status call_wait(struct control *control, struct call *call, uint64_t deadline,
                             const char *what, const char *key)
{
    bool timely = true;
    pthread_mutex_lock(&control->lock);
    while (!call->done && !atomic_load(&control->stopped) && timely)
        timely = wait_changed(control, deadline);
    call_remove(control, call);
    pthread_mutex_unlock(&control->lock);
    if (call->done && call->status == RAIA_OK)
        return RAIA_OK;
    if (call->done) {
        raia_status status = fail(call->status, "%s", call->body);
        free(call->body);
        return status;
    }
    RAIA_TRY(control_check(control));
    return fail(RAIA_ETIMEDOUT, "%s '%s': no answer from %s in time", what, key, control->whom);
}

static raia_status check_key(const char *key, size_t reserve)
{
    size_t len = strlen(key);
    if (len == 0 || len + reserve > FRAME_KEY_MAX)
        return fail(RAIA_EINVAL, "control key of %zu bytes, allowed are 1 to %zu", len,
                    FRAME_KEY_MAX - reserve);
    return RAIA_OK;
}

/* A request whose body is KEY, of a gather SIZE and KEY. */
static raia_status ask(struct control *control, enum frame_type type, const char *key, int size,
                       uint64_t deadline, char **body, size_t *len)
{
    uint8_t prefix[4];
    frame_write_size(prefix, (uint32_t)size);
    struct call call;
    call_add(control, &call);
    const struct frame frame = { type, RAIA_OK, call.id, (const uint8_t *)key, strlen(key) };
    size_t prefix_len = type == FRAME_GATHER ? sizeof prefix : 0;
    raia_status sent = send_frame(control, &frame, prefix, prefix_len, deadline);
    uint64_t until = sent == RAIA_OK ? deadline : clock_ns();
    raia_status status = call_wait(control, &call, until, "waiting for", key);
    if (status != RAIA_OK)
        return status;
    *body = call.body;
    *len = call.len;
    return RAIA_OK;
}

raia_status control_put(struct control *control, const char *key, const void *data, size_t len)
{
    RAIA_TRY(check_key(key, 0));
    if (len > FRAME_VALUE_MAX)
        return fail(RAIA_EINVAL, "control value '%s' of %zu bytes, allowed are %d", key, len,
                    FRAME_VALUE_MAX);
    uint8_t prefix[10 + FRAME_KEY_MAX];
    size_t prefix_len;
    frame_write_prefix(prefix, &prefix_len, FRAME_PUT, key, 0);
    struct call call;
    uint64_t deadline = deadline_in_ms(REPLY_MS);
    call_add(control, &call);
    const struct frame frame = { FRAME_PUT, RAIA_OK, call.id, data, len };
    raia_status sent = send_frame(control, &frame, prefix, prefix_len, deadline);
    if (sent != RAIA_OK)
        deadline = clock_ns();
    raia_status status = call_wait(control, &call, deadline, "publishing", key);
    if (status == RAIA_OK)
        free(call.body);
    return status;
}

raia_status control_get(struct control *control, const char *key, void **data, size_t *len,
                        uint64_t deadline)
{
    RAIA_TRY(check_key(key, 0));
    return ask(control, FRAME_GET, key, 0, deadline, (char **)data, len);
}

raia_status control_peek(struct control *control, const char *key, void **data, size_t *len)
{
    RAIA_TRY(check_key(key, 0));
    return ask(control, FRAME_PEEK, key, 0, deadline_in_ms(REPLY_MS), (char **)data, len);
}

/* The ranks that have published nothing under KEY: the text of a gather that timed out. */
static raia_status name_missing(struct control *control, const char *key, int size)
{
    char part[FRAME_KEY_MAX + 16];
    struct buf names = { 0 };
    int missing = 0;
    for (int rank = 0; rank < size; rank++) {
        void *data;
        size_t len;
        snprintf(part, sizeof part, "%s/%d", key, rank);
        raia_status status = control_peek(control, part, &data, &len);
        if (status == RAIA_OK)
            free(data);
        else if (status == RAIA_ENOTFOUND && missing++ < 8)
            buf_printf(&names, "%s%d", missing == 1 ? "" : ", ", rank);
    }
    raia_status status =
        fail(RAIA_ETIMEDOUT, "rank %s%s did not reach '%s' in time",
             names.data != NULL ? names.data : "?", missing > 8 ? " and others" : "", key);
    buf_release(&names);
    return status;
}

raia_status control_gather(struct control *control, const char *key, int size, const json_t *mine,
                           uint64_t deadline, json_t **all)
{
    RAIA_TRY(check_key(key, 12));
    char part[FRAME_KEY_MAX + 16];
    snprintf(part, sizeof part, "%s/%d", key, control->rank);
    char *text = json_dumps(mine, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL)
        return fail(RAIA_EBUG, "control value '%s' cannot be written as JSON", part);
    raia_status status = control_put(control, part, text, strlen(text));
    free(text);
    RAIA_TRY(status);
    size_t len;
    status = ask(control, FRAME_GATHER, key, size, deadline, &text, &len);
    if (status == RAIA_ETIMEDOUT)
        return name_missing(control, key, size);
    RAIA_TRY(status);
    status = json_parse(text, len, FRAME_REPLY_MAX, key, all);
    free(text);
    if (status == RAIA_OK && json_array_size(*all) != (size_t)size) {
        status = fail(RAIA_EFORMAT, "'%s' has %zu values for %d ranks", key, json_array_size(*all),
                      size);
        json_decref(*all);
    }
    return status;
}

raia_status control_event(struct control *control, const json_t *event)
{
    char *text = json_dumps(event, JSON_COMPACT);
    if (text == NULL)
        return fail(RAIA_EINVAL, "an event must be a JSON object or array");
    size_t len = strlen(text);
    raia_status status;
    if (len > FRAME_EVENT_MAX) {
        status = fail(RAIA_EINVAL, "an event of %zu bytes, allowed are %d", len, FRAME_EVENT_MAX);
    } else {
        const struct frame frame = { FRAME_EVENT, RAIA_OK, 0, (const uint8_t *)text, len };
        status = send_frame(control, &frame, NULL, 0, deadline_in_ms(REPLY_MS));
    }
    free(text);
    return status;
}

/* ---- files ---- */

static raia_status send_piece(struct control *control, struct call *call, const char *name,
                              uint64_t offset, const uint8_t *data, size_t len)
{
    uint8_t prefix[10 + FRAME_KEY_MAX];
    size_t prefix_len;
    frame_write_prefix(prefix, &prefix_len, FRAME_CHUNK, name, offset);
    call_add(control, call);
    const struct frame frame = { FRAME_CHUNK, RAIA_OK, call->id, data, len };
    return send_frame(control, &frame, prefix, prefix_len, deadline_in_ms(REPLY_MS));
}

static raia_status wait_piece(struct control *control, struct call *call, const char *name)
{
    RAIA_TRY(call_wait(control, call, deadline_in_ms(REPLY_MS), "writing", name));
    free(call->body);
    return RAIA_OK;
}

raia_status control_chunk(struct control *control, const char *name, uint64_t offset,
                          const void *data, size_t len)
{
    RAIA_TRY(check_key(name, 0));
    struct call calls[CHUNKS_AHEAD];
    size_t pieces = len == 0 ? 1 : (len + FRAME_CHUNK_MAX - 1) / FRAME_CHUNK_MAX;
    size_t sent = 0, done = 0;
    raia_status status = RAIA_OK;
    while (done < sent || (sent < pieces && status == RAIA_OK)) {
        bool more = sent < pieces && status == RAIA_OK && sent - done < CHUNKS_AHEAD;
        raia_status got;
        if (more) {
            size_t at = sent * FRAME_CHUNK_MAX;
            size_t step = len - at < FRAME_CHUNK_MAX ? len - at : FRAME_CHUNK_MAX;
            got = send_piece(control, &calls[sent++ % CHUNKS_AHEAD], name, offset + at,
                             (const uint8_t *)data + at, step);
        } else {
            got = wait_piece(control, &calls[done++ % CHUNKS_AHEAD], name);
        }
        if (status == RAIA_OK)
            status = got;
    }
    return status;
}

/* ---- coming and going ---- */

static raia_status say_hello(struct control *control, const char *token, uint64_t deadline)
{
    uint8_t message[FRAME_HEAD + 12 + FRAME_TOKEN_MAX];
    struct frame hello = { .type = FRAME_HELLO }, reply;
    frame_write_hello(message + FRAME_HEAD, &hello.len, (uint32_t)control->rank, token);
    frame_write_head(message, &hello);
    RAIA_TRY(net_send(control->fd, message, FRAME_HEAD + hello.len, deadline, control->whom));
    char *text;
    RAIA_TRY(read_frame(control, deadline, &reply, &text));
    raia_status status = RAIA_OK;
    if (reply.type == FRAME_ABORT)
        status = fail(RAIA_EPEER, "%s", text);
    else if (reply.status != RAIA_OK)
        status = fail(reply.status, "%s refused rank %d: %s", control->whom, control->rank, text);
    free(text);
    return status;
}

static raia_status meet(struct control *control, const char *host, uint16_t port, const char *token,
                        uint64_t deadline)
{
    for (;;) {
        RAIA_TRY(net_connect(host, port, deadline, true, &control->fd));
        control_tune_socket(control->fd);
        raia_status status = say_hello(control, token, deadline);
        if (status == RAIA_OK)
            return RAIA_OK;
        close(control->fd);
        control->fd = -1;
        /* A driver with too many strangers at its door closes it at once: come again. */
        if (status != RAIA_EPEER || deadline_left_ms(deadline) == 0)
            return status;
        clock_sleep_ms(100);
    }
}

static raia_status start_reader(struct control *control)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&control->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&control->lock, NULL);
    pthread_mutex_init(&control->send_lock, NULL);
    int code = pthread_create(&control->reader, NULL, read_frames, control);
    if (code != 0)
        return fail(RAIA_EIO, "cannot start the control thread: %s", strerror(code));
    return RAIA_OK;
}

raia_status control_connect(struct control **out, const char *address, const char *token, int rank,
                            uint64_t deadline)
{
    char host[256];
    uint16_t port;
    RAIA_TRY(net_split(address, host, &port));
    if (strlen(token) == 0 || strlen(token) > FRAME_TOKEN_MAX)
        return fail(RAIA_EINVAL, "a control token has 1 to %d bytes, not %zu", FRAME_TOKEN_MAX,
                    strlen(token));
    struct control *control;
    RAIA_TRY(MEM_NEW(&control, 1));
    control->fd = -1;
    control->rank = rank;
    snprintf(control->whom, sizeof control->whom, "the driver at %s", address);
    raia_status status = meet(control, host, port, token, deadline);
    if (status == RAIA_OK)
        status = start_reader(control);
    if (status != RAIA_OK) {
        if (control->fd >= 0)
            close(control->fd);
        free(control);
        return status;
    }
    *out = control;
    return RAIA_OK;
}

int control_socket(const struct control *control)
{
    return control->fd;
}

/* The driver closes its end when it has taken the goodbye: what was sent before it has been
 * handled. */
static void say_goodbye(struct control *control)
{
    const struct frame bye = { .type = FRAME_BYE };
    uint64_t deadline = deadline_in_ms(GOODBYE_MS);
    if (send_frame(control, &bye, NULL, 0, deadline) != RAIA_OK)
        return;
    shutdown(control->fd, SHUT_WR);
    pthread_mutex_lock(&control->lock);
    while (!control->reader_ended && wait_changed(control, deadline))
        continue;
    pthread_mutex_unlock(&control->lock);
}

void control_close(struct control *control, bool clean)
{
    if (control == NULL)
        return;
    if (clean)
        say_goodbye(control);
    shutdown(control->fd, SHUT_RDWR);
    pthread_join(control->reader, NULL);
    close(control->fd);
    pthread_cond_destroy(&control->changed);
    pthread_mutex_destroy(&control->lock);
    pthread_mutex_destroy(&control->send_lock);
    free(control);
}
