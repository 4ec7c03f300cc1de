/* The head's launcher: a driver inside a cluster's job asks its head for ranks
 * (docs/cluster-api.md, groups). */
#include "launch/launch_priv.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANSWER_MAX = 16 << 20, POLL_S = 20 };

struct head {
    CURL *curl;
    char *base; /* http://host:port/api/raia/v1 */
    char *token;
    char *group;     /* id */
    int64_t version; /* of the last answer */
    int count;
    bool *reported; /* [count] */
    json_t *answer; /* the last one */
};

static bool applies(void)
{
    return env_get("RAIA_ADDRESS", NULL) != NULL && env_get("RAIA_JOB_TOKEN", NULL) != NULL;
}

static size_t take(char *data, size_t size, size_t count, void *self)
{
    return buf_append(self, data, size * count) == RAIA_OK ? size * count : 0;
}

static raia_status check_answer(long code, const struct buf *body, const char *what)
{
    if (code >= 200 && code < 300)
        return RAIA_OK;
    raia_status status = code == 404 ? RAIA_ENOTFOUND : RAIA_EREFUSED;
    return fail(status, "the head refused to %s (HTTP %ld): %.500s", what, code,
                body->data != NULL ? body->data : "");
}

/* One request; *OUT (NULL allowed) is the caller's to decref. */
static raia_status call(struct head *h, const char *method, const char *path, const json_t *body,
                        long timeout_s, const char *what, json_t **out)
{
    char url[1024], auth[512];
    struct buf answer = { .max = ANSWER_MAX };
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    snprintf(url, sizeof url, "%s%s", h->base, path);
    snprintf(auth, sizeof auth, "Authorization: Bearer %s", h->token);
    struct curl_slist *headers = curl_slist_append(NULL, auth);
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Expect:");
    curl_easy_reset(h->curl);
    curl_easy_setopt(h->curl, CURLOPT_URL, url);
    curl_easy_setopt(h->curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(h->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(h->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h->curl, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(h->curl, CURLOPT_CONNECTTIMEOUT, 5L);
    curl_easy_setopt(h->curl, CURLOPT_TIMEOUT, timeout_s);
    curl_easy_setopt(h->curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(h->curl, CURLOPT_WRITEDATA, &answer);
    if (text != NULL)
        curl_easy_setopt(h->curl, CURLOPT_POSTFIELDS, text);
    CURLcode code = curl_easy_perform(h->curl);
    long http = 0;
    curl_easy_getinfo(h->curl, CURLINFO_RESPONSE_CODE, &http);
    raia_status status = RAIA_OK;
    if (code != CURLE_OK)
        status = fail(RAIA_EPEER, "cannot reach the head at %s to %s: %s", h->base, what,
                      curl_easy_strerror(code));
    else
        status = check_answer(http, &answer, what);
    if (status == RAIA_OK && out != NULL)
        status = json_parse(answer.data != NULL ? answer.data : "", answer.len, ANSWER_MAX,
                            "the head's answer", out);
    curl_slist_free_all(headers);
    buf_release(&answer);
    free(text);
    return status;
}

static json_t *argv_json(char *const *argv, const char *self)
{
    json_t *list = json_array();
    json_array_append_new(list, json_string(self));
    for (int i = 1; argv[0] != NULL && argv[i] != NULL; i++)
        json_array_append_new(list, json_string(argv[i]));
    return list;
}

/* This program as ranks on other nodes find it: relative to the job's working folder when it is
 * inside (each node has its copy), else by its absolute path. */
static raia_status own_path(char *out, size_t size)
{
    char self[4096], cwd[4096];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    if (len <= 0 || getcwd(cwd, sizeof cwd) == NULL)
        return fail(RAIA_EIO, "cannot find this program");
    self[len] = '\0';
    size_t n = strlen(cwd);
    if (strncmp(self, cwd, n) == 0 && self[n] == '/')
        snprintf(out, size, "./%s", self + n + 1);
    else
        snprintf(out, size, "%s", self);
    return RAIA_OK;
}

static raia_status request_json(const struct launch_request *request, json_t **out)
{
    char self[4096], control[300];
    RAIA_TRY(own_path(self, sizeof self));
    RAIA_TRY(launch_control_address(request, control, sizeof control));
    json_t *workers =
        request->workers == LAUNCH_ALL ? json_string("all") : json_integer(request->workers);
    *out = json_pack("{s:o, s:i, s:o, s:{s:s, s:s}, s:s}", "workers", workers, "gpus_per_worker",
                     request->gpus_per_worker, "argv", argv_json(request->argv, self), "env",
                     "RAIA_CONTROL", control, "RAIA_CONTROL_TOKEN", request->control_token, "cwd",
                     ".");
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

static void release(void *impl)
{
    struct head *h = impl;
    if (h->curl != NULL)
        curl_easy_cleanup(h->curl);
    json_decref(h->answer);
    free(h->base);
    free(h->token);
    free(h->group);
    free(h->reported);
    free(h);
}

static raia_status open_head(struct head **out)
{
    struct head *h = NULL;
    RAIA_TRY(MEM_NEW(&h, 1));
    h->version = -1;
    h->curl = curl_easy_init();
    h->base = str_format("%s/api/raia/v1", env_get("RAIA_ADDRESS", ""));
    h->token = strdup(env_get("RAIA_JOB_TOKEN", ""));
    if (h->curl == NULL || h->base == NULL || h->token == NULL) {
        release(h);
        return fail(RAIA_ENOMEM, "out of memory");
    }
    *out = h;
    return RAIA_OK;
}

/* Asks for the group's state, waiting up to WAIT_S for one newer than the last. */
static raia_status refresh(struct head *h, unsigned wait_s)
{
    char path[256];
    json_t *answer;
    snprintf(path, sizeof path, "/groups/%s?wait=%u&since=%lld", h->group, wait_s,
             (long long)h->version);
    RAIA_TRY(call(h, "GET", path, NULL, (long)wait_s + 15, "follow the ranks", &answer));
    json_decref(h->answer);
    h->answer = answer;
    return json_get_i64(answer, "the head's answer", "version", 0, INT64_MAX, &h->version);
}

/* Seconds that one request may wait: not beyond the deadline, and bounded where there is none. */
static unsigned poll_s(uint64_t deadline)
{
    int ms = deadline_left_ms(deadline);
    return ms < 0 || ms > POLL_S * 1000 ? POLL_S : (unsigned)(ms + 999) / 1000;
}

static raia_status await_running(struct head *h, double pending_s, const char *reason)
{
    double limit_s = pending_s > 0 ? pending_s : 600;
    uint64_t deadline = deadline_in_ms((uint64_t)(limit_s * 1000));
    log_info("waiting for workers: %s", reason);
    for (;;) {
        const char *state;
        RAIA_TRY(refresh(h, poll_s(deadline)));
        RAIA_TRY(json_get_string(h->answer, "the head's answer", "state", &state));
        if (strcmp(state, "pending") != 0)
            return RAIA_OK;
        if (json_get_string(h->answer, "the head's answer", "reason", &reason) != RAIA_OK)
            reason = "no reason given";
        if (deadline_left_ms(deadline) == 0)
            return fail(RAIA_ETIMEDOUT, "no room for the ranks in %.0f s: %s", limit_s, reason);
    }
}

static raia_status start_group(struct head *h, const struct launch_request *request)
{
    json_t *body, *answer = NULL;
    const char *id, *state, *reason = "the head gave no reason";
    RAIA_TRY(request_json(request, &body));
    raia_status status = call(h, "POST", "/groups", body, 60, "start the ranks", &answer);
    json_decref(body);
    RAIA_TRY(status);
    h->answer = answer;
    RAIA_TRY(json_get_string(answer, "the head's answer", "group", &id));
    RAIA_TRY(json_get_string(answer, "the head's answer", "state", &state));
    h->group = strdup(id);
    if (h->group == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    if (strcmp(state, "pending") != 0)
        return RAIA_OK;
    if (json_is_string(json_object_get(answer, "reason")))
        reason = json_string_value(json_object_get(answer, "reason"));
    char first_reason[512];
    snprintf(first_reason, sizeof first_reason, "%s", reason);
    return await_running(h, request->pending_s, first_reason);
}

static raia_status stop(void *impl, unsigned grace_ms)
{
    struct head *h = impl;
    char path[256];
    if (h->group == NULL)
        return RAIA_OK;
    snprintf(path, sizeof path, "/groups/%s?grace_ms=%u", h->group, grace_ms);
    return call(h, "DELETE", path, NULL, (long)grace_ms / 1000 + 30, "stop the ranks", NULL);
}

static raia_status start(const struct launch_request *request, void **impl, int *world_size,
                         int *nodes)
{
    struct head *h = NULL;
    RAIA_TRY(open_head(&h));
    raia_status status = start_group(h, request);
    int64_t size = 0;
    if (status == RAIA_OK)
        status = json_get_i64(h->answer, "the head's answer", "world_size", 1, 1 << 20, &size);
    if (status == RAIA_OK)
        status = MEM_NEW(&h->reported, (size_t)size);
    if (status != RAIA_OK) {
        /* The first failure is the one to tell, whatever the clean-up says. */
        char *text = strdup(raia_error());
        stop(h, 0);
        release(h);
        status = fail(status, "%s", text != NULL ? text : "cannot start the ranks");
        free(text);
        return status;
    }
    h->count = *world_size = (int)size;
    *nodes = (int)json_array_size(json_object_get(h->answer, "nodes"));
    *impl = h;
    return RAIA_OK;
}

static int64_t member(const json_t *rank, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(rank, key);
    return json_is_integer(value) ? json_integer_value(value) : fallback;
}

static bool ended(const json_t *rank)
{
    const char *state = json_string_value(json_object_get(rank, "state"));
    return json_is_true(json_object_get(rank, "lost")) ||
           (state != NULL && strcmp(state, "running") != 0 && strcmp(state, "starting") != 0 &&
            strcmp(state, "pending") != 0);
}

static void describe(const json_t *rank, struct launch_exit *out)
{
    out->rank = (int)member(rank, "rank", -1);
    out->node = (int)member(rank, "node", -1);
    out->code = (int)member(rank, "exit_code", -1);
    out->signal = (int)member(rank, "signal", 0);
    out->lost = json_is_true(json_object_get(rank, "lost"));
    const json_t *lines = json_object_get(rank, "last_lines");
    const char *last = json_string_value(json_array_get(lines, json_array_size(lines) - 1));
    snprintf(out->text, sizeof out->text, "%s", last != NULL ? last : "");
}

/* The next ended rank of the last answer that was not reported yet. */
static bool next_ended(struct head *h, struct launch_exit *out, int *left)
{
    const json_t *ranks = json_object_get(h->answer, "ranks");
    *left = 0;
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *rank = json_array_get(ranks, i);
        int64_t number = member(rank, "rank", -1);
        if (number < 0 || number >= h->count || h->reported[number])
            continue;
        if (ended(rank)) {
            h->reported[number] = true;
            describe(rank, out);
            return true;
        }
        ++*left;
    }
    return false;
}

static raia_status wait_next(void *impl, uint64_t deadline, struct launch_exit *out)
{
    struct head *h = impl;
    for (;;) {
        int left;
        if (next_ended(h, out, &left))
            return RAIA_OK;
        if (left == 0 && json_object_get(h->answer, "ranks") != NULL)
            return fail(RAIA_ENOTFOUND, "all ranks have ended");
        if (deadline_left_ms(deadline) == 0)
            return fail(RAIA_ETIMEDOUT, "no rank has ended yet");
        RAIA_TRY(refresh(h, poll_s(deadline)));
    }
}

static raia_status tell(void *impl, const json_t *event)
{
    struct head *h = impl;
    const char *id = env_get("RAIA_JOB_ID", "");
    char *escaped = curl_easy_escape(h->curl, id, 0);
    char *path = escaped != NULL ? str_format("/jobs/%s/events", escaped) : NULL;
    curl_free(escaped);
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = call(h, "POST", path, event, 15, "take a report", NULL);
    free(path);
    return status;
}

const struct launcher launch_head = { "head", applies, start, wait_next, stop, tell, release };
