/* web: the head's HTTP/1.1 server: libmicrohttpd driven from the libuv loop. A table of routes says
 * who may call what and how a body is taken; a handler answers at once or later (long polls).
 *
 * Refused before any handler runs: broken framing (two Content-Length, Content-Length with
 * Transfer-Encoding, no Host), requests of browsers that would change something, missing or wrong
 * tokens, bodies beyond the limit, senders that are too slow. All functions belong to the loop's
 * thread. */
#ifndef RAIA_CLUSTER_WEB_H
#define RAIA_CLUSTER_WEB_H

#include "base/base.h"

#include <microhttpd.h>
#include <uv.h>

struct web;
struct web_request;

enum web_access {
    WEB_OPEN,  /* anyone (health checks) */
    WEB_TOKEN, /* the head's token, when it has one */
    WEB_AGENT, /* the same, and never a browser */
    WEB_JOB,   /* the handler checks the job's own token; never a browser */
};
enum web_body { WEB_NO_BODY, WEB_JSON, WEB_STREAM };

struct web_route {
    const char *method; /* GET also answers HEAD */
    const char *path; /* "/api/jobs/{}/stop": {} is one segment, decoded into args; a trailing slash
                         is optional */
    enum web_access access;
    enum web_body body;
    void (*handle)(struct web_request *request); /* when the body is whole */
    /* WEB_STREAM: a part of the body; false drops the rest (the handler then answers). */
    bool (*chunk)(struct web_request *request, const void *data, size_t len);
    bool (*begin)(
        struct web_request *request); /* WEB_STREAM: before the body; false: it has answered */
};

struct web_config {
    uv_loop_t *loop;
    int fd;                         /* listening socket, owned by the web */
    const struct web_route *routes; /* ends with method NULL */
    const char *token;              /* NULL: none is asked for */
    void *self;                     /* for handlers: web_self */
};

raia_status web_start(struct web **out, const struct web_config *config);
/* Answers all waiting requests with 503 and closes; FREED is called when nothing of it is left.
 * Upgraded sockets must have been given back before. */
void web_stop(struct web *web, void (*freed)(void *self));

/* ---- what a handler sees ---- */

void *web_self(const struct web_request *request);
const char *web_arg(const struct web_request *request, int index); /* decoded {} segment */
/* Value of a query parameter, decoded; NULL when absent. Borrowed. */
const char *web_query(const struct web_request *request, const char *name);
const char *web_header(const struct web_request *request, const char *name);
const json_t *
web_json(const struct web_request *request); /* WEB_JSON: an object, array or other value */
/* Bearer value of the Authorization header, or NULL. */
const char *web_bearer(const struct web_request *request);
/* The peer's address as text (at least 64 bytes). */
void web_peer(const struct web_request *request, char *out);
/* The caller's own state; GONE is called once when the request ends, answered or not. */
void web_set_state(struct web_request *request, void *state, void (*gone)(void *state));
void *web_state(const struct web_request *request);
uint64_t web_content_length(const struct web_request *request); /* UINT64_MAX: chunked */

/* One reply a request; at once or later. */
void web_reply(struct web_request *request, unsigned status, const char *type, const void *data,
               size_t len);
void web_text(struct web_request *request, unsigned status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Steals JSON. */
void web_object(struct web_request *request, unsigned status, json_t *json);
/* Replies with this thread's last failure, mapped to a status. */
void web_failure(struct web_request *request, raia_status status);
/* Steals RESPONSE (a file, a stream). */
void web_response(struct web_request *request, unsigned status, const char *type,
                  struct MHD_Response *response);

/* Completes a WebSocket handshake. OPENED gets the socket and the bytes that came after the
 * handshake; it calls release(release_arg) when it is done with the socket. Replies 400/426 itself
 * when the request is no proper handshake; DROPPED gets ARG whenever OPENED will not be called. */
struct web_socket {
    int fd;
    const void *extra;
    size_t extra_len;
    void (*release)(void *arg);
    void *release_arg;
};
void web_upgrade(struct web_request *request, void *arg,
                 void (*opened)(void *arg, const struct web_socket *socket),
                 void (*dropped)(void *arg));

#endif
