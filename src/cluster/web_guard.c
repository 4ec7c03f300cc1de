/* Who and what gets past the door: framing, browsers, routes, tokens. */
#include "cluster/codec.h"
#include "cluster/limits.h"
#include "cluster/web_priv.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

struct header_count {
    int length, encoding, host;
    bool bad_length;
};

static enum MHD_Result count_header(void *self, enum MHD_ValueKind kind, const char *name,
                                    const char *value)
{
    (void)kind;
    struct header_count *count = self;
    count->encoding += strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    count->host += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        count->length++;
        for (const char *c = value; c != NULL && *c != '\0'; c++)
            count->bad_length |= !isdigit((unsigned char)*c);
    }
    return MHD_YES;
}

/* Ambiguous framing lets two programs in a row see different requests. */
static bool framing_is_sound(struct web_request *request)
{
    struct header_count count = { 0 };
    MHD_get_connection_values(request->connection, MHD_HEADER_KIND, count_header, &count);
    const char *what = NULL;
    if (count.length > 1 || count.bad_length)
        what = "Content-Length must be given once, as a number";
    else if (count.length > 0 && count.encoding > 0)
        what = "Content-Length and Transfer-Encoding exclude each other";
    else if (count.encoding > 1)
        what = "Transfer-Encoding must be given once";
    else if (count.host != 1)
        what = "Host must be given once";
    if (what != NULL)
        web_text(request, MHD_HTTP_BAD_REQUEST, "%s", what);
    return what == NULL;
}

/* Contract: a page in a browser must not be able to drive the cluster (CVE-2025-62593,
 * CVE-2026-27482). */
static bool is_browser(const struct web_request *request)
{
    static const char *const signs[] = { "Referer",
                                         "Origin",
                                         "Sec-Fetch-Mode",
                                         "Sec-Fetch-Dest",
                                         "Sec-Fetch-Site",
                                         "Sec-Fetch-User",
                                         "Access-Control-Request-Method",
                                         "Access-Control-Request-Headers" };
    const char *agent = web_header(request, "User-Agent");
    if (agent != NULL && str_starts(agent, "Mozilla"))
        return true;
    for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
        if (web_header(request, signs[i]) != NULL)
            return true;
    return false;
}

static bool is_safe_method(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 ||
           strcmp(method, "OPTIONS") == 0;
}

static bool browser_may(struct web_request *request, const char *method)
{
    if (!is_browser(request))
        return true;
    if (!is_safe_method(method)) {
        web_text(request, MHD_HTTP_METHOD_NOT_ALLOWED,
                 "Method Not Allowed for browser traffic: browsers may only read");
        return false;
    }
    if (request->route != NULL && request->route->access >= WEB_AGENT) {
        web_text(request, MHD_HTTP_FORBIDDEN, "Browser traffic is not allowed here");
        return false;
    }
    return true;
}

/* Length of the segment at TEXT. */
static size_t segment(const char *text)
{
    return strcspn(text, "/");
}

/* Compares the request's path with a pattern, segment by segment; NARGS places of {} are noted. */
static bool path_matches(const char *path, const char *pattern, const char *args[WEB_ARGS],
                         size_t lens[WEB_ARGS])
{
    int nargs = 0;
    while (*path == '/' && *pattern == '/') {
        size_t n = segment(++path), m = segment(++pattern);
        if (m == 2 && memcmp(pattern, "{}", 2) == 0 && n > 0 && nargs < WEB_ARGS) {
            args[nargs] = path;
            lens[nargs++] = n;
        } else if (n != m || memcmp(path, pattern, n) != 0) {
            return false;
        }
        path += n;
        pattern += m;
    }
    return (*path == '\0' || strcmp(path, "/") == 0) &&
           (*pattern == '\0' || strcmp(pattern, "/") == 0);
}

static bool method_matches(const struct web_route *route, const char *method)
{
    return strcmp(route->method, method) == 0 ||
           (strcmp(route->method, "GET") == 0 && strcmp(method, "HEAD") == 0);
}

static bool take_args(struct web_request *request, const char *args[WEB_ARGS],
                      const size_t lens[WEB_ARGS])
{
    for (int i = 0; i < WEB_ARGS && args[i] != NULL; i++) {
        request->args[i] = strndup(args[i], lens[i]);
        if (request->args[i] == NULL || !percent_decode(request->args[i]))
            return false;
    }
    return true;
}

/* Sets request->route. The reply that a miss deserves is its return: 404, or 405 when only the
 * method is wrong; 0 for a hit. */
static unsigned find_route(struct web_request *request, const char *method)
{
    unsigned miss = MHD_HTTP_NOT_FOUND;
    for (const struct web_route *r = request->web->config.routes; r->method != NULL; r++) {
        const char *args[WEB_ARGS] = { NULL };
        size_t lens[WEB_ARGS];
        if (!path_matches(request->url, r->path, args, lens))
            continue;
        if (!method_matches(r, method)) {
            miss = MHD_HTTP_METHOD_NOT_ALLOWED;
            continue;
        }
        if (!take_args(request, args, lens))
            return MHD_HTTP_BAD_REQUEST;
        request->route = r;
        return 0;
    }
    return miss;
}

/* The token that the request shows, from the first of the three places that has one (facts of the
 * contract); NULL: none. */
static const char *shown_token(const struct web_request *request)
{
    static const char *const headers[] = { "Authorization", "X-Ray-Authorization" };
    for (size_t i = 0; i < 2; i++) {
        const char *value = web_header(request, headers[i]);
        if (value != NULL && value[0] != '\0')
            return str_starts(value, "Bearer ") ? value + 7 : "";
    }
    return MHD_lookup_connection_value(request->connection, MHD_COOKIE_KIND,
                                       "ray-authentication-token");
}

static bool token_is_good(struct web_request *request)
{
    const char *wanted = request->web->config.token;
    enum web_access access = request->route != NULL ? request->route->access : WEB_TOKEN;
    if (wanted == NULL || access == WEB_OPEN || access == WEB_JOB)
        return true;
    const char *shown = shown_token(request);
    if (shown == NULL) {
        web_text(request, MHD_HTTP_UNAUTHORIZED, "Unauthorized: Missing authentication token");
        return false;
    }
    if (!same_secret(shown, wanted)) {
        web_text(request, MHD_HTTP_FORBIDDEN, "Forbidden: Invalid authentication token");
        return false;
    }
    return true;
}

static bool size_is_allowed(struct web_request *request)
{
    uint64_t len = web_content_length(request);
    bool stream = request->route->body == WEB_STREAM;
    size_t max = stream ? LIMIT_PACKAGE : request->route->body == WEB_JSON ? LIMIT_JSON_BODY : 0;
    if (len == UINT64_MAX || len <= max || request->route->body == WEB_NO_BODY)
        return true;
    char size[16], limit[16];
    web_text(request, MHD_HTTP_CONTENT_TOO_LARGE,
             "Request Entity Too Large: the body has %s, the limit is %s%s", str_bytes(size, len),
             str_bytes(limit, max),
             stream ? "; leave large files out of the working directory (excludes, .rayignore)"
                    : "");
    return false;
}

bool web_admit(struct web_request *request, const char *method)
{
    if (!framing_is_sound(request))
        return false;
    if (request->url == NULL) {
        web_text(request, MHD_HTTP_BAD_REQUEST, "Bad Request: malformed request target");
        return false;
    }
    unsigned miss = find_route(request, method);
    if (!browser_may(request, method) || !token_is_good(request))
        return false;
    if (miss != 0) {
        web_text(request, miss, "%u: %s %s: %s", miss, method, request->url,
                 miss == MHD_HTTP_NOT_FOUND     ? "Not Found"
                 : miss == MHD_HTTP_BAD_REQUEST ? "malformed escape in the path"
                                                : "Method Not Allowed");
        return false;
    }
    return size_is_allowed(request);
}
