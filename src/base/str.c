#include "base/base.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

char *str_format(const char *format, ...)
{
    char *out = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&out, format, args);
    va_end(args);
    return len < 0 ? NULL : out;
}

char *str_bytes(char *out, uint64_t bytes)
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB" };
    double value = (double)bytes;
    int unit = 0;
    while (value >= 999.5 && unit < 5) {
        value /= 1000;
        unit++;
    }
    int digits = unit == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(out, 16, "%.*f %s", digits, value, units[unit]);
    return out;
}

raia_status str_to_i64(const char *text, const char *what, int64_t min, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return fail(RAIA_EINVAL, "%s: '%s' is not a whole number", what, text);
    if (value < min || value > max)
        return fail(RAIA_EINVAL, "%s: %lld is not within %lld and %lld", what, value,
                    (long long)min, (long long)max);
    *out = value;
    return RAIA_OK;
}

static raia_status size_unit(const char *suffix, uint64_t *unit)
{
    static const struct {
        const char *suffix;
        uint64_t unit;
    } units[] = {
        { "", 1 },
        { "B", 1 },
        { "K", 1ull << 10 },
        { "KiB", 1ull << 10 },
        { "KB", 1000ull },
        { "M", 1ull << 20 },
        { "MiB", 1ull << 20 },
        { "MB", 1000000ull },
        { "G", 1ull << 30 },
        { "GiB", 1ull << 30 },
        { "GB", 1000000000ull },
    };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcasecmp(suffix, units[i].suffix) == 0) {
            *unit = units[i].unit;
            return RAIA_OK;
        }
    return RAIA_EINVAL;
}

raia_status str_to_size(const char *text, const char *what, uint64_t max, uint64_t *out)
{
    char *end;
    uint64_t unit;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno != 0 || !(value >= 0) || size_unit(end, &unit) != RAIA_OK)
        return fail(RAIA_EINVAL, "%s: '%s' is not a size such as 512, 64K, 1.5G or 100MB", what,
                    text);
    double bytes = value * (double)unit;
    if (bytes > (double)max)
        return fail(RAIA_EINVAL, "%s: '%s' is more than %llu bytes", what, text,
                    (unsigned long long)max);
    *out = (uint64_t)bytes;
    return RAIA_OK;
}

raia_status str_to_f64(const char *text, const char *what, double *out)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value))
        return fail(RAIA_EINVAL, "%s: '%s' is not a number", what, text);
    *out = value;
    return RAIA_OK;
}

bool str_starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

uint64_t str_hash(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

raia_status str_random_hex(char *out, size_t bytes)
{
    unsigned char raw[64];
    if (bytes > sizeof raw)
        return fail(RAIA_EBUG, "at most %zu random bytes at once", sizeof raw);
    if (getrandom(raw, bytes, 0) != (ssize_t)bytes)
        return fail(RAIA_EIO, "cannot get random bytes: %s", strerror(errno));
    for (size_t i = 0; i < bytes; i++)
        snprintf(out + 2 * i, 3, "%02x", raw[i]);
    return RAIA_OK;
}
