#include "base/base.h"

#include <string.h>

static _Thread_local char text[2048];

static const struct {
    const char *text;
    int exit;
} statuses[] = {
#define RAIA_X(name, exit, text) { text, exit },
    RAIA_STATUS_MAP(RAIA_X)
#undef RAIA_X
};

static const struct {
    size_t size;
    const char *name;
} dtypes[] = {
#define RAIA_X(name, bytes, text, tag) { bytes, text },
    RAIA_DTYPE_MAP(RAIA_X)
#undef RAIA_X
};

raia_status(fail)(raia_status status, const char *format, ...)
{
    /* Formatted aside first: an argument may be the last failure's own text. */
    char fresh[sizeof text];
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    memcpy(text, fresh, sizeof text);
    return status;
}

raia_status(fail_in)(raia_status status, const char *format, ...)
{
    char prefix[512], fresh[sizeof text];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    if (snprintf(fresh, sizeof fresh, "%s: %s", prefix, text) < 0)
        return status;
    memcpy(text, fresh, sizeof text);
    return status;
}

void fail_clear(void)
{
    text[0] = '\0';
}

const char *raia_error(void)
{
    return text;
}

const char *raia_status_text(raia_status status)
{
    return (unsigned)status < RAIA_STATUS_COUNT ? statuses[status].text : "unknown status";
}

int raia_exit_code(raia_status status)
{
    return (unsigned)status < RAIA_STATUS_COUNT ? statuses[status].exit : 1;
}

size_t raia_dtype_size(raia_dtype dtype)
{
    return (unsigned)dtype < RAIA_DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *raia_dtype_name(raia_dtype dtype)
{
    return (unsigned)dtype < RAIA_DTYPE_COUNT ? dtypes[dtype].name : "unknown type";
}
