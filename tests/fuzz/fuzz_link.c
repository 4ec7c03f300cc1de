/* fuzz_link: any bytes as the messages of a head's or an agent's link. The input is cut into
 * messages: a byte whose lowest bit says text or log, two bytes of length, the bytes. */
#include "cluster/link.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t last_seen;

static void on_message(void *self, json_t *message)
{
    const struct link *link = self;
    if (!json_is_string(json_object_get(message, "type")) || link->seen_seq <= last_seen)
        abort();
    last_seen = link->seen_seq;
}

static void on_log(void *self, uint64_t proc, const char *text, size_t len)
{
    const struct link *link = self;
    (void)proc;
    if (link->seen_seq <= last_seen || (len > 0 && memchr(text, '\n', len) == text + len))
        abort();
    last_seen = link->seen_seq;
}

static void on_level(void *self, bool high)
{
    (void)self;
    (void)high;
}

static void on_closed(struct link *link)
{
    memset(link, 0xa5, sizeof *link);
}

static void feed(struct link *link, const uint8_t *data, size_t size)
{
    while (size >= 3) {
        size_t len = data[1] + 256u * data[2];
        if (len > size - 3)
            len = size - 3;
        if (link_receive(link, (data[0] & 1) != 0, data + 3, len) != RAIA_OK &&
            raia_error()[0] == '\0')
            abort();
        data += 3 + len;
        size -= 3 + len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uv_loop_t loop;
    struct link link = { .message = on_message, .log = on_log, .level = on_level, .self = &link };
    last_seen = 0;
    if (uv_loop_init(&loop) != 0)
        abort();
    link_init(&link, &loop);
    for (int i = 0; i < 3; i++) /* something to acknowledge */
        link_send(&link, json_pack("{s:s}", "type", "ping"));
    feed(&link, data, size);
    link_close(&link, on_closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&loop) != 0)
        abort();
    return 0;
}
