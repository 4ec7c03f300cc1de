/* The head's client: requests by libcurl, log tails by a WebSocket. */
#include "cluster/client.h"

#include "cluster/codec.h"
#include "cluster/dial.h"
#include "cluster/limits.h"
#include "cluster/package.h"
#include "cluster/ws.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CALL_S = 60, CONNECT_MS = 5000 };

struct client {
    CURL *curl;
    char *address, *token;
};

raia_status client_open(struct client **out, const char *address)
{
    struct client *client;
    RAIA_TRY(MEM_NEW(&client, 1));
    raia_status status = cluster_address(address, &client->address);
    if (status == RAIA_OK)
        status = cluster_token(&client->token);
    if (status == RAIA_OK && (client->curl = curl_easy_init()) == NULL)
        status = fail(RAIA_ENOMEM, "out of memory: a client");
    if (status != RAIA_OK) {
        client_close(client);
        return status;
    }
    *out = client;
    return RAIA_OK;
}

void client_close(struct client *client)
{
    if (client == NULL)
        return;
    if (client->curl != NULL)
        curl_easy_cleanup(client->curl);
    free(client->address);
    free(client->token);
    free(client);
}

const char *client_address(const struct client *client)
{
    return client->address;
}

/* ---- one request ---- */

raia_status client_refusal(long http, const char *text)
{
    raia_status status = http == 404                  ? RAIA_ENOTFOUND
                         : http == 401 || http == 403 ? RAIA_EREFUSED
                         : http == 400                ? RAIA_EINVAL
                                                      : RAIA_EFAIL;
    const char *mend = http == 401 || http == 403
                           ? " (set RAIA_TOKEN to the token that the head was started with)"
                           : "";
    if (text != NULL && text[0] != '\0')
        return fail(status, "%.1500s%s", text, mend);
    return fail(status, "the head answered HTTP %ld%s", http, mend);
}

static size_t take(char *data, size_t size, size_t count, void *self)
{
    return buf_append(self, data, size * count) == RAIA_OK ? size * count : 0;
}

static struct curl_slist *prepare(CURL *curl, const char *address, const char *token,
                                  const char *path, struct buf *url)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    if (token != NULL) {
        char *auth = str_format("Authorization: Bearer %s", token);
        headers = curl_slist_append(headers, auth != NULL ? auth : "");
        free(auth);
    }
    curl_easy_reset(curl);
    if (buf_printf(url, "%s%s", address, path) == RAIA_OK)
        curl_easy_setopt(curl, CURLOPT_URL, url->data);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    return headers;
}

static raia_status unreachable(CURLcode code, const char *address)
{
    return fail(code == CURLE_OPERATION_TIMEDOUT ? RAIA_ETIMEDOUT : RAIA_EPEER,
                "no head answers at %s: %s (raia up, or raia start --head, starts one; --address "
                "or RAIA_ADDRESS names another)",
                address, curl_easy_strerror(code));
}

static raia_status finish(CURL *curl, CURLcode code, const char *address, const char *what,
                          const struct buf *answer)
{
    long http = 0;
    if (code != CURLE_OK)
        return fail_in(unreachable(code, address), "cannot %s", what);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &http);
    if (http == 200)
        return RAIA_OK;
    return fail_in(client_refusal(http, answer->data), "cannot %s", what);
}

raia_status client_call(struct client *client, const char *method, const char *path,
                        const json_t *body, const char *what, json_t **out)
{
    struct buf url = { 0 }, answer = { 0 };
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct curl_slist *headers = prepare(client->curl, client->address, client->token, path, &url);
    if (text != NULL) {
        headers = curl_slist_append(headers, "Content-Type: application/json");
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, text);
    }
    curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(client->curl, CURLOPT_TIMEOUT, (long)CALL_S);
    curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &answer);
    raia_status status =
        finish(client->curl, curl_easy_perform(client->curl), client->address, what, &answer);
    if (out != NULL)
        *out = NULL;
    if (status == RAIA_OK && out != NULL && answer.len > 0)
        status = json_parse(answer.data, answer.len, answer.len + 1, "the head's answer", out);
    curl_slist_free_all(headers);
    buf_release(&url);
    buf_release(&answer);
    free(text);
    return status;
}

char *client_job_path(const char *id, const char *suffix)
{
    char *escaped = percent_encode(id);
    char *path = escaped != NULL ? str_format("/api/jobs/%s%s", escaped, suffix) : NULL;
    free(escaped);
    return path;
}

/* ---- files ---- */

struct sink {
    FILE *file;
    uint64_t left;
};

static size_t to_file(char *data, size_t size, size_t count, void *self)
{
    struct sink *sink = self;
    size_t len = size * count;
    if (len > sink->left)
        return 0;
    sink->left -= len;
    return fwrite(data, 1, len, sink->file);
}

raia_status client_download(const char *address, const char *token, const char *path,
                            const char *to, uint64_t max)
{
    struct buf url = { 0 };
    CURL *curl = curl_easy_init();
    struct sink sink = { fopen(to, "wbe"), max };
    if (curl == NULL || sink.file == NULL) {
        if (sink.file != NULL)
            fclose(sink.file);
        curl_easy_cleanup(curl);
        return fail(RAIA_EIO, "cannot write %s: %s", to, strerror(errno));
    }
    struct curl_slist *headers = prepare(curl, address, token, path, &url);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 30L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, to_file);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
    CURLcode code = curl_easy_perform(curl);
    raia_status status = RAIA_OK;
    if (fclose(sink.file) != 0 || code != CURLE_OK)
        status = fail(RAIA_EIO, "cannot fetch %s%s: %s", address, path, curl_easy_strerror(code));
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    buf_release(&url);
    return status;
}

static raia_status put_file(struct client *client, const char *path, const char *file)
{
    struct buf url = { 0 }, answer = { 0 };
    FILE *in = fopen(file, "rbe");
    struct stat st;
    if (in == NULL || fstat(fileno(in), &st) < 0) {
        if (in != NULL)
            fclose(in);
        return fail(RAIA_EIO, "cannot read %s: %s", file, strerror(errno));
    }
    struct curl_slist *headers = prepare(client->curl, client->address, client->token, path, &url);
    headers = curl_slist_append(headers, "Content-Type: application/zip");
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(client->curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(client->curl, CURLOPT_READDATA, in);
    curl_easy_setopt(client->curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)st.st_size);
    curl_easy_setopt(client->curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(client->curl, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &answer);
    raia_status status = finish(client->curl, curl_easy_perform(client->curl), client->address,
                                "upload the working directory", &answer);
    curl_slist_free_all(headers);
    fclose(in);
    buf_release(&url);
    buf_release(&answer);
    return status;
}

static raia_status pack_and_put(struct client *client, const struct package_plan *plan,
                                const char *path)
{
    char *dir, *zip;
    RAIA_TRY(dir_make_temp("raia-package-", &dir));
    zip = path_join(dir, "package.zip");
    raia_status status =
        zip == NULL ? fail(RAIA_ENOMEM, "out of memory: a path") : package_write(plan, zip);
    if (status == RAIA_OK)
        status = put_file(client, path, zip);
    char *text = status != RAIA_OK ? strdup(raia_error()) : NULL;
    if (dir_remove(dir) != RAIA_OK)
        log_warn("%s", raia_error());
    if (status != RAIA_OK)
        status = fail(status, "%s", text != NULL ? text : "cannot upload");
    free(text);
    free(zip);
    free(dir);
    return status;
}

raia_status client_upload(struct client *client, const char *dir, const char *const *excludes,
                          size_t nexcludes, char **uri)
{
    struct package_plan plan = { 0 };
    char name[PACKAGE_NAME], path[PACKAGE_NAME + 32];
    raia_status status = package_scan(&plan, dir, excludes, nexcludes);
    if (status == RAIA_OK) {
        package_plan_name(&plan, name);
        snprintf(path, sizeof path, "/api/packages/gcs/%s", name);
        status = client_call(client, "GET", path, NULL, "ask for the package", NULL);
        if (status == RAIA_ENOTFOUND)
            status = pack_and_put(client, &plan, path);
    }
    if (status == RAIA_OK && (*uri = str_format("gcs://%s", name)) == NULL)
        status = fail(RAIA_ENOMEM, "out of memory: a package's address");
    package_plan_release(&plan);
    return status;
}

/* ---- following a log ---- */

struct tail {
    uv_loop_t loop;
    struct ws *ws;
    int fd, code;
    raia_status status;
};

static void on_text(void *self, bool text, const void *data, size_t len)
{
    struct tail *tail = self;
    const char *at = data;
    (void)text;
    while (tail->fd >= 0 && len > 0) {
        ssize_t n = write(tail->fd, at, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            tail->status = fail(RAIA_EIO, "cannot write the log: %s", strerror(errno));
            ws_drop(tail->ws);
            return;
        }
        at += n;
        len -= (size_t)n;
    }
}

static void on_end(void *self, int code)
{
    struct tail *tail = self;
    tail->code = code;
    tail->ws = NULL;
}

static const struct ws_events tail_events = { .message = on_text, .closed = on_end };

raia_status client_tail(struct client *client, const char *id, bool follow, int fd)
{
    struct tail tail = { .fd = fd, .code = WS_LOST };
    struct dialled dialled;
    char *path = client_job_path(id, !follow   ? "/logs/tail?follow=0"
                                     : fd >= 0 ? "/logs/tail"
                                               : "/logs/tail?from=end");
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    raia_status status = dial_websocket(&dialled, client->address, path, client->token);
    free(path);
    if (status != RAIA_OK)
        return status;
    uv_loop_init(&tail.loop);
    const struct ws_config config = { .loop = &tail.loop,
                                      .fd = dialled.fd,
                                      .client = true,
                                      .curl = dialled.curl,
                                      .extra = dialled.extra,
                                      .extra_len = dialled.extra_len,
                                      .max_message = LIMIT_MESSAGE,
                                      .beat_ms = 5000,
                                      .silence_ms = 40000,
                                      .events = &tail_events,
                                      .self = &tail };
    status = ws_open(&tail.ws, &config);
    if (status == RAIA_OK)
        dialled.curl = NULL; /* the ws's now */
    dialled_release(&dialled);
    if (status == RAIA_OK)
        uv_run(&tail.loop, UV_RUN_DEFAULT);
    uv_loop_close(&tail.loop);
    RAIA_TRY(status);
    RAIA_TRY(tail.status);
    if (tail.code != WS_NORMAL)
        return fail(RAIA_EPEER,
                    "the head at %s ended the log of job %s (WebSocket code %d) before the job did",
                    client->address, id, tail.code);
    return RAIA_OK;
}
