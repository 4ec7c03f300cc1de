/* dial: a client's WebSocket handshake, over libcurl's connection so that TLS and names come with
 * it. Blocking, bounded by DIAL_MS a step; callers with a loop run it on a worker thread. */
#ifndef RAIA_CLUSTER_DIAL_H
#define RAIA_CLUSTER_DIAL_H

#include "base/base.h"

#include <curl/curl.h>

struct dialled {
    CURL *curl;  /* the connection; the caller's to clean up */
    int fd;      /* its socket, nonblocking; the connection's own */
    char *extra; /* bytes that came after the handshake; the caller's to free */
    size_t extra_len;
    char local[64]; /* this machine's numeric address on the connection */
};
/* ADDRESS is "http://host:port". A refusal gives the status of its HTTP code, as client_call does,
 * with the server's text. */
raia_status dial_websocket(struct dialled *out, const char *address, const char *path,
                           const char *token);
void dialled_release(struct dialled *dialled);

#endif
