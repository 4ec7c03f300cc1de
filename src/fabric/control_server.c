/* The driver's end of the control channel: one thread, one epoll set, buffers per connection. */
#include "fabric/control_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    HELLO_MS = 5000,       /* a stranger's time to say hello */
    STRANGERS_MAX = 64,    /* connections beyond the ranks' */
    TURN_MS = 250,         /* how often hello times are looked at */
    READ_STEP = 256 << 10, /* bytes taken from one connection before the next has its turn */
    OUT_PAUSE = 4 << 20,   /* unsent bytes from which on a rank's requests are no longer read */
    EVENTS = 64,
    BACKLOG = 1024, /* beyond it a client's connect is retried only after a second */
};

void control_tune_socket(int fd)
{
    const int one = 1, idle_s = 5, interval_s = 3, probes = 3;
    const unsigned unacknowledged_ms = 15000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

void conn_drop(struct conn *conn)
{
    conn->dead = true;
}

static void watch(struct control_server *server, struct conn *conn)
{
    size_t unsent = conn->out.len - conn->out_at;
    uint32_t events = (unsent < OUT_PAUSE ? EPOLLIN : 0) | (unsent > 0 ? EPOLLOUT : 0);
    if (events == conn->events || conn->dead)
        return;
    struct epoll_event event = { .events = events, .data.ptr = conn };
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event) < 0)
        conn_drop(conn);
    conn->events = events;
}

static void flush(struct control_server *server, struct conn *conn)
{
    while (!conn->dead && conn->out_at < conn->out.len) {
        ssize_t put = send(conn->fd, conn->out.data + conn->out_at, conn->out.len - conn->out_at,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put >= 0)
            conn->out_at += (size_t)put;
        else if (errno == EAGAIN)
            break;
        else if (errno != EINTR)
            conn_drop(conn);
    }
    if (conn->out_at == conn->out.len) {
        buf_clear(&conn->out);
        conn->out_at = 0;
    }
    watch(server, conn);
}

void conn_send(struct control_server *server, struct conn *conn, const struct frame *frame)
{
    uint8_t head[FRAME_HEAD];
    frame_write_head(head, frame);
    if (buf_append(&conn->out, head, sizeof head) != RAIA_OK ||
        buf_append(&conn->out, frame->body, frame->len) != RAIA_OK) {
        conn_drop(conn);
        return;
    }
    flush(server, conn);
}

/* Handles the whole frames at the start of the input and moves the rest to its front. */
static void handle_input(struct control_server *server, struct conn *conn)
{
    size_t at = 0;
    while (!conn->dead && conn->in.len - at >= FRAME_HEAD) {
        struct frame frame;
        const uint8_t *head = (const uint8_t *)conn->in.data + at;
        raia_status status = frame_read_head(head, 'r', &frame);
        if (status == RAIA_OK && conn->rank < 0 && frame.type != FRAME_HELLO)
            frame.len = 0; /* refused below, before its body is waited for */
        if (status == RAIA_OK && conn->in.len - at - FRAME_HEAD < frame.len)
            break;
        frame.body = head + FRAME_HEAD;
        if (status == RAIA_OK)
            status = session_frame(server, conn, &frame);
        else
            log_debug("control: %s", raia_error());
        if (status != RAIA_OK)
            conn_drop(conn);
        at += FRAME_HEAD + frame.len;
    }
    if (conn->dead || at == 0)
        return;
    memmove(conn->in.data, conn->in.data + at, conn->in.len - at);
    conn->in.len -= at;
}

static void take_input(struct control_server *server, struct conn *conn)
{
    ssize_t got = recv(conn->fd, server->step, READ_STEP, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0 || buf_append(&conn->in, server->step, (size_t)got) != RAIA_OK) {
        conn_drop(conn);
        return;
    }
    handle_input(server, conn);
    watch(server, conn);
}

static void free_conn(struct conn *conn)
{
    close(conn->fd);
    session_release(conn);
    buf_release(&conn->in);
    buf_release(&conn->out);
    free(conn);
}

static raia_status add_conn(struct control_server *server, int fd)
{
    struct conn *conn;
    RAIA_TRY(MEM_NEW(&conn, 1));
    *conn = (struct conn){ .fd = fd, .rank = -1, .events = EPOLLIN };
    conn->in.max = FRAME_HEAD + FRAME_EVENT_MAX + READ_STEP;
    conn->out.max = 2U * FRAME_REPLY_MAX;
    conn->hello_deadline = deadline_in_ms(HELLO_MS);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = conn };
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        free(conn);
        return fail(RAIA_EIO, "epoll_ctl: %s", strerror(errno));
    }
    control_tune_socket(fd);
    conn->next = server->conns;
    server->conns = conn;
    server->conn_count++;
    return RAIA_OK;
}

static void accept_some(struct control_server *server)
{
    for (int i = 0; i < EVENTS; i++) {
        int fd = accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
            clock_sleep_ms(
                10); /* the listener stays readable: do not turn round it at full speed */
        if (fd < 0)
            return;
        if (server->conn_count >= server->size + STRANGERS_MAX || add_conn(server, fd) != RAIA_OK)
            close(fd);
    }
}

/* Frees the connections that are dead or never said hello, and reports the ranks among them. */
static void reap(struct control_server *server, bool report)
{
    for (struct conn **at = &server->conns; *at != NULL;) {
        struct conn *conn = *at;
        if (conn->rank < 0 && deadline_left_ms(conn->hello_deadline) == 0)
            conn_drop(conn);
        if (!conn->dead) {
            at = &conn->next;
            continue;
        }
        *at = conn->next;
        server->conn_count--;
        int rank = conn->rank;
        bool clean = conn->clean;
        free_conn(conn);
        if (rank < 0)
            continue;
        server->ranks[rank] = NULL;
        if (report && server->callbacks.lost != NULL)
            server->callbacks.lost(server->callbacks.self, rank, clean);
    }
}

static void tell_abort(struct control_server *server)
{
    for (struct conn *conn = server->conns; conn != NULL; conn = conn->next)
        session_tell_abort(server, conn);
}

static void handle_event(struct control_server *server, const struct epoll_event *event)
{
    if (event->data.ptr == server) {
        accept_some(server);
    } else if (event->data.ptr == &server->wake_fd) {
        uint64_t times;
        if (read(server->wake_fd, &times, sizeof times) > 0)
            tell_abort(server);
    } else {
        struct conn *conn = event->data.ptr;
        if (event->events & EPOLLOUT)
            flush(server, conn);
        if (!conn->dead && (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
            take_input(server, conn);
    }
}

static void *serve(void *arg)
{
    struct control_server *server = arg;
    while (!atomic_load(&server->stopping)) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(server->epoll_fd, events, EVENTS, TURN_MS);
        for (int i = 0; i < n; i++)
            handle_event(server, &events[i]);
        reap(server, true);
    }
    return NULL;
}

static raia_status watch_own(struct control_server *server)
{
    struct epoll_event accepts = { .events = EPOLLIN, .data.ptr = server };
    struct epoll_event wakes = { .events = EPOLLIN, .data.ptr = &server->wake_fd };
    server->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    server->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->epoll_fd < 0 || server->wake_fd < 0 ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &accepts) < 0 ||
        epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, server->wake_fd, &wakes) < 0)
        return fail(RAIA_EIO, "cannot watch the control sockets: %s", strerror(errno));
    return RAIA_OK;
}

static void free_server(struct control_server *server)
{
    for (struct conn *conn = server->conns; conn != NULL; conn = conn->next)
        conn_drop(conn);
    reap(server, false);
    store_release(server);
    const int fds[] = { server->listen_fd, server->epoll_fd, server->wake_fd };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_mutex_destroy(&server->lock);
    free(server->ranks);
    free(server->step);
    free(server->reason);
    free(server->token);
    free(server);
}

static raia_status start(struct control_server *server, const char *host, uint16_t *port,
                         const char *token)
{
    size_t token_len = strlen(token);
    if (token_len == 0 || token_len > FRAME_TOKEN_MAX)
        return fail(RAIA_EINVAL, "a control token has 1 to %d bytes, not %zu", FRAME_TOKEN_MAX,
                    token_len);
    server->token = strdup(token);
    if (server->token == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    RAIA_TRY(MEM_NEW(&server->ranks, (size_t)server->size));
    RAIA_TRY(MEM_NEW(&server->step, READ_STEP));
    RAIA_TRY(net_listen(host, port, BACKLOG, &server->listen_fd));
    /* accept4 must return, not wait, when the connection it was woken for has gone. */
    if (fcntl(server->listen_fd, F_SETFL, O_NONBLOCK) < 0)
        return fail(RAIA_EIO, "listening socket: %s", strerror(errno));
    RAIA_TRY(watch_own(server));
    int code = pthread_create(&server->thread, NULL, serve, server);
    if (code != 0)
        return fail(RAIA_EIO, "cannot start the control thread: %s", strerror(code));
    return RAIA_OK;
}

raia_status control_serve(struct control_server **out, const char *host, uint16_t *port,
                          const char *token, int size, const struct control_callbacks *callbacks)
{
    if (size < 1)
        return fail(RAIA_EINVAL, "a run of %d ranks", size);
    struct control_server *server;
    RAIA_TRY(MEM_NEW(&server, 1));
    *server = (struct control_server){
        .callbacks = *callbacks, .size = size, .listen_fd = -1, .epoll_fd = -1, .wake_fd = -1
    };
    pthread_mutex_init(&server->lock, NULL);
    raia_status status = start(server, host, port, token);
    if (status != RAIA_OK) {
        free_server(server);
        return fail_in(status, "control channel");
    }
    *out = server;
    return RAIA_OK;
}

static void wake(struct control_server *server)
{
    const uint64_t one = 1;
    if (write(server->wake_fd, &one, sizeof one) < 0)
        log_debug("control: wake: %s", strerror(errno)); /* full means that it is awake already */
}

void control_server_abort(struct control_server *server, const char *reason)
{
    pthread_mutex_lock(&server->lock);
    if (server->reason == NULL)
        server->reason = strndup(reason, FRAME_TEXT_MAX);
    pthread_mutex_unlock(&server->lock);
    wake(server);
}

void control_server_close(struct control_server *server)
{
    if (server == NULL)
        return;
    atomic_store(&server->stopping, true);
    wake(server);
    pthread_join(server->thread, NULL);
    tell_abort(server); /* an abort just before the close still reaches the ranks */
    free_server(server);
}
