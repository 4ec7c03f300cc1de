/* web_priv: what the files of the web server share. */
#ifndef RAIA_CLUSTER_WEB_PRIV_H
#define RAIA_CLUSTER_WEB_PRIV_H

#include "cluster/web.h"

enum { WEB_ARGS = 2 };

struct web_conn { /* one TCP connection, until it ends or is upgraded */
    struct web_conn *prev, *next;
    struct web *web;
    int fd;
    uint64_t deadline; /* for the phase that it is in; 0: none */
};

struct web_request {
    struct web_request *prev, *next; /* suspended requests */
    struct web *web;
    struct MHD_Connection *connection;
    struct web_conn *conn;
    const struct web_route *route;
    char *url, *query;
    char *args[WEB_ARGS];
    char *values[8]; /* decoded query values that were handed out */
    struct buf body;
    json_t *json;
    void *state;
    void (*gone)(void *state);
    struct MHD_Response *response;
    unsigned status;
    uint64_t started_ns, received;
    bool begun, handled, suspended, discard, upgraded;
    void *upgrade_arg;
    void (*opened)(void *arg, const struct web_socket *socket);
    void (*dropped)(void *arg);
};

struct web {
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer, tick;
    int handles;
    struct web_config config;
    struct web_conn *conns;
    struct web_request *waiting;
    int waiters;
    bool stopping;
    void (*freed)(void *self);
};

/* Small frames must not wait for each other's acknowledgement. */
void web_quicken(int fd);
/* Runs the daemon again soon: after a reply or a released socket. */
void web_kick(struct web *web);
/* True when the request may go on; else it has been answered. */
bool web_admit(struct web_request *request, const char *method);

#endif
