/* fuzz_text: any bytes as the texts that come over HTTP and from users' folders: escapes, UTF-8,
 * names, addresses, ignore patterns, numbers. */
#include "cluster/codec.h"
#include "cluster/ignore.h"
#include "cluster/package.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_escapes(const char *text)
{
    char *escaped = percent_encode(text), *plain = strdup(text);
    if (escaped == NULL || plain == NULL)
        abort();
    if (!percent_decode(escaped) || strcmp(escaped, text) != 0)
        abort();
    if (percent_decode(plain) && strlen(plain) > strlen(text))
        abort();
    free(escaped);
    free(plain);
}

static void check_utf8(const char *data, size_t size)
{
    struct buf once = { 0 }, twice = { 0 };
    if (utf8_append(&once, data, size) != RAIA_OK)
        abort();
    if (once.len > 0 && utf8_append(&twice, once.data, once.len) != RAIA_OK)
        abort();
    /* What came out is valid, hence unchanged by a second pass. */
    if (once.len != twice.len || (once.len > 0 && memcmp(once.data, twice.data, once.len) != 0))
        abort();
    if (utf8_floor(data, size) > size)
        abort();
    buf_release(&once);
    buf_release(&twice);
}

static void check_names(const char *text)
{
    char safe[SAFE_NAME], host[256], accept[WS_ACCEPT];
    const char *name;
    uint16_t port;
    safe_name(text, safe);
    if (!path_is_component(safe) || strlen(safe) >= sizeof safe)
        abort();
    if (package_name_of(text, &name) == RAIA_OK && !path_is_component(name))
        abort();
    if (net_split(text, host, &port) == RAIA_OK && (strlen(host) >= sizeof host || host[0] == '\0'))
        abort();
    if (strlen(text) == WS_KEY)
        ws_accept_of(text, accept);
    same_secret(text, safe);
}

static void check_numbers(const char *text)
{
    int64_t whole;
    uint64_t bytes;
    double real;
    if (str_to_i64(text, "a number", -10, 10, &whole) == RAIA_OK && (whole < -10 || whole > 10))
        abort();
    if (str_to_size(text, "a size", 1000, &bytes) == RAIA_OK && bytes > 1000)
        abort();
    str_to_f64(text, "a number", &real);
}

/* The first line is a path, the others are patterns. */
static void check_patterns(char *text)
{
    struct ignore ignore = { 0 };
    char *rest = text, *path = strsep(&rest, "\n"), *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strlen(line) > 64)
            line[64] = '\0';
        if (ignore_add(&ignore, "", line) != RAIA_OK)
            abort();
    }
    if (strlen(path) > 64)
        path[64] = '\0';
    ignore_matches(&ignore, path, false);
    ignore_matches(&ignore, path, true);
    ignore_truncate(&ignore, 0);
    free(ignore.rules);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    check_utf8(text, size);
    check_escapes(text);
    check_names(text);
    check_numbers(text);
    check_patterns(text);
    free(text);
    return 0;
}
