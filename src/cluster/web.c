#include "cluster/web.h"

#include "cluster/limits.h"
#include "cluster/web_priv.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

void web_quicken(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* ---- the daemon on the loop ---- */

static void on_timer(uv_timer_t *timer);

static void run(struct web *web)
{
    MHD_run(web->daemon);
    MHD_UNSIGNED_LONG_LONG left;
    if (MHD_get_timeout(web->daemon, &left) == MHD_YES)
        uv_timer_start(&web->timer, on_timer, left, 0);
    else
        uv_timer_stop(&web->timer);
}

static void on_timer(uv_timer_t *timer)
{
    run(timer->data);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    run(poll->data);
}

void web_kick(struct web *web)
{
    if (!web->stopping)
        uv_timer_start(&web->timer, on_timer, 0, 0);
}

/* libmicrohttpd's own timeout restarts with every byte; these deadlines do not. */
static void on_tick(uv_timer_t *tick)
{
    struct web *web = tick->data;
    uint64_t now = clock_ns();
    struct web_conn *conn;
    DL_FOREACH(web->conns, conn)
    if (conn->deadline != 0 && now > conn->deadline)
        shutdown(conn->fd, SHUT_RDWR);
}

/* ---- connections and requests ---- */

static void on_connection(void *self, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct web *web = self;
    struct web_conn *conn = *context;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (conn != NULL)
            DL_DELETE(web->conns, conn);
        free(conn);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    conn = calloc(1, sizeof *conn);
    if (conn == NULL || info == NULL) {
        free(conn);
        return;
    }
    *conn = (struct web_conn){ .web = web,
                               .fd = info->connect_fd,
                               .deadline = deadline_in_ms(LIMIT_HEADERS_S * 1000) };
    web_quicken(conn->fd);
    DL_APPEND(web->conns, conn);
    *context = conn;
}

static void split_target(struct web_request *request, const char *uri)
{
    if (str_starts(uri, "http://") || str_starts(uri, "https://")) {
        uri = strchr(strchr(uri, ':') + 3, '/');
        if (uri == NULL)
            uri = "/";
    }
    request->url = uri[0] == '/' ? strdup(uri) : NULL;
    char *query = request->url != NULL ? strchr(request->url, '?') : NULL;
    if (query != NULL) {
        *query = '\0';
        request->query = query + 1;
    }
}

static void *on_target(void *self, const char *uri, struct MHD_Connection *connection)
{
    struct web_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return NULL;
    request->web = self;
    request->connection = connection;
    request->started_ns = clock_ns();
    request->body.max = LIMIT_JSON_BODY;
    split_target(request, uri);
    return request;
}

static size_t keep_escapes(void *self, struct MHD_Connection *connection, char *text)
{
    (void)self;
    (void)connection;
    return strlen(text);
}

static void release_request(struct web_request *request)
{
    if (request->gone != NULL)
        request->gone(request->state);
    request->gone = NULL;
    if (request->dropped != NULL && !request->upgraded)
        request->dropped(request->upgrade_arg);
    buf_release(&request->body);
    json_decref(request->json);
    request->json = NULL;
    for (int i = 0; i < WEB_ARGS; i++)
        free(request->args[i]);
    for (size_t i = 0; i < sizeof request->values / sizeof request->values[0]; i++)
        free(request->values[i]);
    free(request->url);
    if (request->response != NULL)
        MHD_destroy_response(request->response);
    free(request);
}

static void on_completed(void *self, struct MHD_Connection *connection, void **request_self,
                         enum MHD_RequestTerminationCode code)
{
    (void)connection;
    (void)code;
    struct web *web = self;
    struct web_request *request = *request_self;
    if (request == NULL)
        return;
    if (request->suspended) {
        DL_DELETE(web->waiting, request);
        web->waiters--;
    }
    if (request->conn != NULL)
        request->conn->deadline = request->upgraded ? 0 : deadline_in_ms(LIMIT_IDLE_S * 1000);
    release_request(request);
    *request_self = NULL;
}

/* ---- one request's steps ---- */

static enum MHD_Result send_reply(struct web_request *request)
{
    struct MHD_Response *response = request->response;
    request->response = NULL;
    enum MHD_Result done = MHD_queue_response(request->connection, request->status, response);
    MHD_destroy_response(response);
    return done;
}

static enum MHD_Result begin(struct web_request *request, const char *method)
{
    request->begun = true;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    request->conn = info != NULL ? info->socket_context : NULL;
    if (request->conn != NULL)
        request->conn->deadline = deadline_in_ms(LIMIT_BODY_S * 1000);
    if (web_admit(request, method) && request->route->body == WEB_STREAM)
        request->route->begin(request);
    if (request->response == NULL)
        return MHD_YES;
    request->handled = true;
    return send_reply(request);
}

/* An upload may take long, but not crawl. */
static bool keeps_up(const struct web_request *request)
{
    uint64_t s = (clock_ns() - request->started_ns) / 1000000000;
    return s < LIMIT_BODY_S ||
           (s < LIMIT_UPLOAD_S && request->received > (s - LIMIT_BODY_S) * LIMIT_UPLOAD_RATE);
}

static enum MHD_Result take_body(struct web_request *request, const char *data, size_t len)
{
    request->received += len;
    if (request->route->body == WEB_STREAM) {
        if (!keeps_up(request))
            return MHD_NO;
        if (request->conn != NULL)
            request->conn->deadline = deadline_in_ms(LIMIT_BODY_S * 1000);
        request->discard |= request->received > LIMIT_PACKAGE ||
                            (!request->discard && !request->route->chunk(request, data, len));
        return request->discard && request->received > LIMIT_PACKAGE ? MHD_NO : MHD_YES;
    }
    if (request->received > LIMIT_JSON_BODY)
        return MHD_NO;
    if (request->route->body == WEB_JSON && buf_append(&request->body, data, len) != RAIA_OK)
        return MHD_NO;
    return MHD_YES;
}

static void handle(struct web_request *request)
{
    request->handled = true;
    if (request->conn != NULL)
        request->conn->deadline = 0;
    if (request->route->body == WEB_JSON) {
        raia_status status =
            json_parse(request->body.data != NULL ? request->body.data : "", request->body.len,
                       LIMIT_JSON_BODY, "request body", &request->json);
        if (status != RAIA_OK) {
            web_failure(request, status);
            return;
        }
    }
    request->route->handle(request);
}

static enum MHD_Result finish(struct web_request *request)
{
    if (!request->handled)
        handle(request);
    if (request->response != NULL)
        return send_reply(request);
    struct web *web = request->web;
    if (web->waiters >= LIMIT_WAITERS || web->stopping) {
        web_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "too many requests wait; try again later");
        return send_reply(request);
    }
    request->suspended = true;
    web->waiters++;
    DL_APPEND(web->waiting, request);
    MHD_suspend_connection(request->connection);
    return MHD_YES;
}

static enum MHD_Result on_request(void *self, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *len, void **request_self)
{
    (void)self;
    (void)connection;
    (void)url;
    (void)version;
    struct web_request *request = *request_self;
    if (request == NULL)
        return MHD_NO;
    if (!request->begun)
        return begin(request, method);
    if (*len == 0)
        return finish(request);
    size_t n = *len;
    *len = 0;
    return take_body(request, data, n);
}

static void on_log(void *self, const char *format, va_list args)
{
    (void)self;
    char line[512];
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = '\0';
    log_debug("http: %s", line);
}

/* ---- start and stop ---- */

static raia_status start_daemon(struct web *web)
{
    fcntl(web->config.fd, F_SETFL, fcntl(web->config.fd, F_GETFL) | O_NONBLOCK);
    web->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_UPGRADE | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL,
        NULL, on_request, web, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_LISTEN_SOCKET,
        web->config.fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)LIMIT_CONNECTIONS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)2 * LIMIT_URL, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)LIMIT_IDLE_S, MHD_OPTION_NOTIFY_CONNECTION, on_connection, web,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, web, MHD_OPTION_URI_LOG_CALLBACK, on_target, web,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_END);
    if (web->daemon == NULL)
        return fail(RAIA_EIO, "the HTTP server did not start");
    return RAIA_OK;
}

raia_status web_start(struct web **out, const struct web_config *config)
{
    struct web *web;
    RAIA_TRY(MEM_NEW(&web, 1));
    web->config = *config;
    raia_status status = start_daemon(web);
    if (status != RAIA_OK) {
        free(web);
        return status;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(web->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uv_poll_init(config->loop, &web->poll, info->epoll_fd);
    uv_timer_init(config->loop, &web->timer);
    uv_timer_init(config->loop, &web->tick);
    web->poll.data = web->timer.data = web->tick.data = web;
    web->handles = 3;
    uv_poll_start(&web->poll, UV_READABLE, on_poll);
    uv_timer_start(&web->tick, on_tick, 1000, 1000);
    web_kick(web);
    *out = web;
    return RAIA_OK;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct web *web = handle->data;
    if (--web->handles > 0)
        return;
    MHD_stop_daemon(web->daemon);
    void (*freed)(void *) = web->freed;
    void *self = web->config.self;
    free(web);
    freed(self);
}

void web_stop(struct web *web, void (*freed)(void *self))
{
    web->freed = freed;
    struct web_request *request, *next;
    DL_FOREACH_SAFE(web->waiting, request, next)
    web_text(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the head is stopping");
    web->stopping = true;
    MHD_run(web->daemon);
    uv_close((uv_handle_t *)&web->poll, on_handle_closed);
    uv_close((uv_handle_t *)&web->timer, on_handle_closed);
    uv_close((uv_handle_t *)&web->tick, on_handle_closed);
}
