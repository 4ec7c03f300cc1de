#include "base/base.h"

#include <stdlib.h>
#include <string.h>

enum { BUF_DEFAULT_MAX = 64 << 20 };

raia_status mem_alloc(void **out, size_t count, size_t size)
{
    *out = calloc(count > 0 ? count : 1, size > 0 ? size : 1);
    if (*out == NULL)
        return fail(RAIA_ENOMEM, "out of memory: %zu items of %zu bytes", count, size);
    return RAIA_OK;
}

static raia_status grow(struct buf *buf, size_t more)
{
    size_t max = buf->max > 0 ? buf->max : BUF_DEFAULT_MAX;
    if (more > max || buf->len > max - more)
        return fail(RAIA_EINVAL, "more than %zu bytes", max);
    size_t need = buf->len + more + 1;
    if (need <= buf->cap)
        return RAIA_OK;
    size_t cap = buf->cap > 0 ? buf->cap : 256;
    while (cap < need)
        cap *= 2;
    char *data = realloc(buf->data, cap);
    if (data == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a buffer of %zu bytes", cap);
    buf->data = data;
    buf->cap = cap;
    return RAIA_OK;
}

raia_status buf_append(struct buf *buf, const void *data, size_t len)
{
    RAIA_TRY(grow(buf, len));
    if (len > 0)
        memcpy(buf->data + buf->len, data, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
    return RAIA_OK;
}

raia_status buf_vprintf(struct buf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (len < 0)
        return fail(RAIA_EBUG, "bad format '%s'", format);
    RAIA_TRY(grow(buf, (size_t)len));
    vsnprintf(buf->data + buf->len, (size_t)len + 1, format, args);
    buf->len += (size_t)len;
    return RAIA_OK;
}

raia_status buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    raia_status status = buf_vprintf(buf, format, args);
    va_end(args);
    return status;
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

void buf_release(struct buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->len = buf->cap = 0;
}
