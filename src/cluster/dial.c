#include "cluster/dial.h"

#include "cluster/client.h"
#include "cluster/codec.h"
#include "cluster/limits.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { ANSWER_MAX = 64 << 10 };

void dialled_release(struct dialled *dialled)
{
    if (dialled->curl != NULL)
        curl_easy_cleanup(dialled->curl);
    free(dialled->extra);
    *dialled = (struct dialled){ .fd = -1 };
}

static raia_status wait_for(int fd, short events, uint64_t deadline)
{
    struct pollfd p = { .fd = fd, .events = events };
    int n = poll(&p, 1, deadline_left_ms(deadline));
    if (n < 0 && errno != EINTR)
        return fail(RAIA_EIO, "poll: %s", strerror(errno));
    if (n == 0)
        return fail(RAIA_ETIMEDOUT, "no answer within %d ms", DIAL_MS);
    return RAIA_OK;
}

static raia_status send_all(struct dialled *d, const char *text, size_t len, uint64_t deadline)
{
    while (len > 0) {
        size_t sent = 0;
        CURLcode code = curl_easy_send(d->curl, text, len, &sent);
        if (code == CURLE_AGAIN)
            RAIA_TRY(wait_for(d->fd, POLLOUT, deadline));
        else if (code != CURLE_OK)
            return fail(RAIA_EPEER, "%s", curl_easy_strerror(code));
        text += sent;
        len -= sent;
    }
    return RAIA_OK;
}

/* Reads until the header is whole; END gets the first byte behind it. */
static raia_status read_header(struct dialled *d, struct buf *answer, uint64_t deadline,
                               size_t *end)
{
    char block[4096];
    for (;;) {
        size_t got = 0;
        CURLcode code = curl_easy_recv(d->curl, block, sizeof block, &got);
        if (code == CURLE_AGAIN) {
            RAIA_TRY(wait_for(d->fd, POLLIN, deadline));
            continue;
        }
        if (code != CURLE_OK || got == 0)
            return fail(RAIA_EPEER, "the connection was closed before an answer came");
        RAIA_TRY(buf_append(answer, block, got));
        const char *stop = strstr(answer->data, "\r\n\r\n");
        if (stop != NULL) {
            *end = (size_t)(stop - answer->data) + 4;
            return RAIA_OK;
        }
    }
}

/* The value of header NAME, trimmed at its line's end; NULL: absent. */
static const char *header_value(const char *text, const char *name, size_t *len)
{
    size_t n = strlen(name);
    for (const char *line = strstr(text, "\r\n"); line != NULL; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, n) != 0 || line[n] != ':')
            continue;
        const char *value = line + n + 1;
        value += strspn(value, " \t");
        *len = strcspn(value, "\r\n");
        return value;
    }
    return NULL;
}

static raia_status check_answer(const char *text, const char *body, const char *key)
{
    char accept[WS_ACCEPT];
    int code = 0;
    size_t len = 0;
    if (sscanf(text, "HTTP/1.%*d %d", &code) != 1)
        return fail(RAIA_EFORMAT, "the answer is not HTTP");
    if (code != 101)
        return client_refusal(code, body);
    ws_accept_of(key, accept);
    const char *value = header_value(text, "Sec-WebSocket-Accept", &len);
    if (value == NULL || len != strlen(accept) || strncmp(value, accept, len) != 0)
        return fail(RAIA_EFORMAT, "the answer's Sec-WebSocket-Accept is wrong");
    return RAIA_OK;
}

static raia_status shake_hands(struct dialled *d, const char *address, const char *path,
                               const char *token)
{
    char key[WS_KEY + 1];
    struct buf request = { 0 }, answer = { .max = ANSWER_MAX };
    uint64_t deadline = deadline_in_ms(DIAL_MS);
    const char *host = strstr(address, "://");
    size_t end = 0;
    RAIA_TRY(ws_random_key(key));
    raia_status status = buf_printf(&request,
                                    "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\n"
                                    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                    "Sec-WebSocket-Key: %s\r\n",
                                    path, host != NULL ? host + 3 : address, key);
    if (status == RAIA_OK && token != NULL)
        status = buf_printf(&request, "Authorization: Bearer %s\r\n", token);
    if (status == RAIA_OK)
        status = buf_append(&request, "\r\n", 2);
    if (status == RAIA_OK)
        status = send_all(d, request.data, request.len, deadline);
    if (status == RAIA_OK)
        status = read_header(d, &answer, deadline, &end);
    if (status == RAIA_OK)
        status = check_answer(answer.data, answer.data + end, key);
    if (status == RAIA_OK && answer.len > end) {
        d->extra_len = answer.len - end;
        d->extra = malloc(d->extra_len);
        if (d->extra == NULL)
            status = fail(RAIA_ENOMEM, "out of memory: a handshake");
        else
            memcpy(d->extra, answer.data + end, d->extra_len);
    }
    buf_release(&request);
    buf_release(&answer);
    return status;
}

static raia_status connect_to(struct dialled *d, const char *address)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    const char *local = NULL;
    d->curl = curl_easy_init();
    if (d->curl == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a connection");
    curl_easy_setopt(d->curl, CURLOPT_URL, address);
    curl_easy_setopt(d->curl, CURLOPT_CONNECT_ONLY, 1L);
    curl_easy_setopt(d->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(d->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(d->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(d->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)DIAL_MS);
    CURLcode code = curl_easy_perform(d->curl);
    if (code == CURLE_OK)
        code = curl_easy_getinfo(d->curl, CURLINFO_ACTIVESOCKET, &fd);
    if (code != CURLE_OK || fd == CURL_SOCKET_BAD)
        return fail(RAIA_EPEER, "%s", curl_easy_strerror(code));
    d->fd = fd;
    if (curl_easy_getinfo(d->curl, CURLINFO_LOCAL_IP, &local) == CURLE_OK && local != NULL)
        snprintf(d->local, sizeof d->local, "%.63s", local);
    return RAIA_OK;
}

raia_status dial_websocket(struct dialled *out, const char *address, const char *path,
                           const char *token)
{
    *out = (struct dialled){ .fd = -1 };
    raia_status status = connect_to(out, address);
    if (status == RAIA_OK)
        status = shake_hands(out, address, path, token);
    if (status != RAIA_OK) {
        dialled_release(out);
        return fail_in(status, "%s", address);
    }
    return RAIA_OK;
}
