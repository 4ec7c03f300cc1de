/* Replies, and what handlers read of a request. */
#include "cluster/codec.h"
#include "cluster/limits.h"
#include "cluster/web_priv.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <utlist.h>

void *web_self(const struct web_request *request)
{
    return request->web->config.self;
}

const char *web_arg(const struct web_request *request, int index)
{
    return request->args[index];
}

const char *web_header(const struct web_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const json_t *web_json(const struct web_request *request)
{
    return request->json;
}

const char *web_bearer(const struct web_request *request)
{
    const char *value = web_header(request, "Authorization");
    return value != NULL && str_starts(value, "Bearer ") ? value + 7 : NULL;
}

const char *web_query(const struct web_request *request, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = request->query; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, "&");
        if (n > len && memcmp(at, name, len) == 0 && at[len] == '=') {
            for (size_t i = 0; i < sizeof request->values / sizeof request->values[0]; i++) {
                char **slot = (char **)&request->values[i];
                if (*slot != NULL)
                    continue;
                *slot = strndup(at + len + 1, n - len - 1);
                return *slot != NULL && percent_decode(*slot) ? *slot : NULL;
            }
            return NULL;
        }
        at += n + (at[n] == '&');
    }
    return NULL;
}

void web_peer(const struct web_request *request, char *out)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *addr = info != NULL ? info->client_addr : NULL;
    out[0] = '\0';
    if (addr != NULL && addr->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)addr)->sin_addr, out, 64);
    else if (addr != NULL && addr->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)addr)->sin6_addr, out, 64);
}

void web_set_state(struct web_request *request, void *state, void (*gone)(void *state))
{
    request->state = state;
    request->gone = gone;
}

void *web_state(const struct web_request *request)
{
    return request->state;
}

uint64_t web_content_length(const struct web_request *request)
{
    const char *value = web_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (value != NULL)
        return strlen(value) < 19 ? strtoull(value, NULL, 10) : UINT64_MAX - 1;
    return web_header(request, MHD_HTTP_HEADER_TRANSFER_ENCODING) != NULL ? UINT64_MAX : 0;
}

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    if (MHD_add_response_header(response, name, value) != MHD_YES)
        log_debug("header %s was not added", name);
}

void web_response(struct web_request *request, unsigned status, const char *type,
                  struct MHD_Response *response)
{
    if (response == NULL || request->response != NULL) {
        if (response != NULL)
            MHD_destroy_response(response);
        return;
    }
    if (type != NULL)
        add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    request->response = response;
    request->status = status;
    if (!request->suspended)
        return;
    request->suspended = false;
    DL_DELETE(request->web->waiting, request);
    request->web->waiters--;
    MHD_resume_connection(request->connection);
    web_kick(request->web);
}

void web_reply(struct web_request *request, unsigned status, const char *type, const void *data,
               size_t len)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(len, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
    web_response(request, status, type, response);
}

void web_text(struct web_request *request, unsigned status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    struct buf text = { .max = LIMIT_JSON_BODY };
    raia_status done = buf_vprintf(&text, format, args);
    va_end(args);
    web_reply(request, status, "text/plain; charset=utf-8", done == RAIA_OK ? text.data : "",
              done == RAIA_OK ? text.len : 0);
    buf_release(&text);
}

void web_object(struct web_request *request, unsigned status, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, 0) : NULL;
    json_decref(json);
    if (text == NULL)
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
    else
        web_reply(request, status, "application/json; charset=utf-8", text, strlen(text));
    free(text);
}

void web_failure(struct web_request *request, raia_status status)
{
    static const struct {
        raia_status status;
        unsigned http;
    } map[] = { { RAIA_EINVAL, MHD_HTTP_BAD_REQUEST },
                { RAIA_EFORMAT, MHD_HTTP_BAD_REQUEST },
                { RAIA_ENOTFOUND, MHD_HTTP_NOT_FOUND },
                { RAIA_EREFUSED, MHD_HTTP_CONFLICT },
                { RAIA_EUNSUPPORTED, MHD_HTTP_NOT_IMPLEMENTED } };
    unsigned http = MHD_HTTP_INTERNAL_SERVER_ERROR;
    for (size_t i = 0; i < sizeof map / sizeof map[0]; i++)
        http = map[i].status == status ? map[i].http : http;
    web_text(request, http, "%s", raia_error());
}

static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; at != NULL && *at != '\0';) {
        at += strspn(at, " \t,");
        size_t n = strcspn(at, " \t,");
        if (n == len && strncasecmp(at, word, len) == 0)
            return true;
        at += n;
    }
    return false;
}

struct upgrade { /* lives until the socket is given back */
    struct web *web;
    struct MHD_UpgradeResponseHandle *urh;
};

static void give_back(void *self)
{
    struct upgrade *upgrade = self;
    MHD_upgrade_action(upgrade->urh, MHD_UPGRADE_ACTION_CLOSE);
    web_kick(upgrade->web);
    free(upgrade);
}

static void on_upgrade(void *self, struct MHD_Connection *connection, void *request_self,
                       const char *extra, size_t extra_len, MHD_socket fd,
                       struct MHD_UpgradeResponseHandle *urh)
{
    (void)connection;
    (void)request_self;
    struct web_request *request = self;
    struct upgrade *upgrade = calloc(1, sizeof *upgrade);
    if (upgrade == NULL) {
        MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
        return;
    }
    *upgrade = (struct upgrade){ .web = request->web, .urh = urh };
    web_quicken(fd);
    request->upgraded = true;
    struct web_socket socket = { .fd = fd,
                                 .extra = extra,
                                 .extra_len = extra_len,
                                 .release = give_back,
                                 .release_arg = upgrade };
    request->opened(request->upgrade_arg, &socket);
}

void web_upgrade(struct web_request *request, void *arg,
                 void (*opened)(void *arg, const struct web_socket *socket),
                 void (*dropped)(void *arg))
{
    request->upgrade_arg = arg;
    request->dropped = dropped;
    const char *key = web_header(request, "Sec-WebSocket-Key");
    const char *version = web_header(request, "Sec-WebSocket-Version");
    if (!has_word(web_header(request, "Upgrade"), "websocket") ||
        !has_word(web_header(request, "Connection"), "upgrade") || key == NULL ||
        strlen(key) != WS_KEY) {
        web_text(request, MHD_HTTP_BAD_REQUEST, "this path is a WebSocket: ask for an upgrade");
        return;
    }
    if (version == NULL || strcmp(version, "13") != 0) {
        web_text(request, MHD_HTTP_UPGRADE_REQUIRED, "only WebSocket version 13 is spoken here");
        return;
    }
    struct MHD_Response *response = MHD_create_response_for_upgrade(on_upgrade, request);
    if (response == NULL) {
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
        return;
    }
    char accept[WS_ACCEPT];
    ws_accept_of(key, accept);
    add_header(response, MHD_HTTP_HEADER_UPGRADE, "websocket");
    add_header(response, "Sec-WebSocket-Accept", accept);
    request->opened = opened;
    web_response(request, MHD_HTTP_SWITCHING_PROTOCOLS, NULL, response);
}
