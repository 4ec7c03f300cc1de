#include "launch/launch_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

static void put(struct lines *lines)
{
    struct iovec parts[] = {
        { lines->prefix, strlen(lines->prefix) },
        { lines->data, lines->len },
        { (char[]){ '\n' }, 1 },
    };
    if (lines->len > 0)
        snprintf(lines->last, sizeof lines->last, "%.*s", (int)lines->len, lines->data);
    if (writev(lines->out, parts, 3) < 0)
        log_debug("cannot pass on a line of output: %s", strerror(errno));
    lines->len = 0;
}

void lines_add(struct lines *lines, const char *data, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (data[i] == '\n' || lines->len == sizeof lines->data)
            put(lines);
        if (data[i] != '\n')
            lines->data[lines->len++] = data[i];
    }
}

void lines_end(struct lines *lines)
{
    if (lines->len > 0)
        put(lines);
}
