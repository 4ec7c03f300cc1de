/* fuzz_control: any bytes as a frame of the control channel. The first byte chooses the side, the
 * next 16 are the head, the rest is the body, whose length the head must give to be read. */
#include "fabric/control_frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_entry(const struct frame *frame)
{
    struct frame_entry entry;
    if (frame_read_entry(frame, &entry) != RAIA_OK)
        return;
    size_t key = strlen(entry.key);
    if (key == 0 || key > FRAME_KEY_MAX)
        abort();
    for (size_t i = 0; i < key; i++)
        if ((unsigned char)entry.key[i] < ' ' || entry.key[i] == 0x7f)
            abort();
    if (entry.len > 0 &&
        (entry.data < frame->body || entry.data + entry.len > frame->body + frame->len))
        abort();
    frame_path_is_safe(entry.key);
    if (frame->type != FRAME_PUT && frame->type != FRAME_CHUNK)
        return;
    uint8_t prefix[10 + FRAME_KEY_MAX];
    size_t len;
    frame_write_prefix(prefix, &len, frame->type, entry.key, entry.offset);
    if (len + entry.len != frame->len || memcmp(prefix, frame->body, len) != 0)
        abort();
}

static void check_hello(const struct frame *frame)
{
    struct frame_hello hello;
    if (frame_read_hello(frame, &hello) != RAIA_OK)
        return;
    if (hello.token_len > FRAME_TOKEN_MAX ||
        (const uint8_t *)hello.token + hello.token_len > frame->body + frame->len)
        abort();
    frame_token_equal(hello.token, hello.token_len, "token", 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame frame;
    if (size < 1 + FRAME_HEAD)
        return 0;
    if (frame_read_head(data + 1, data[0] % 2 == 0 ? 'r' : 's', &frame) != RAIA_OK)
        return 0;
    if (frame.type == FRAME_NONE || frame.type >= FRAME_TYPE_COUNT || frame.len > FRAME_REPLY_MAX)
        abort();
    if (frame.len != size - 1 - FRAME_HEAD)
        return 0;
    frame.body = data + 1 + FRAME_HEAD;
    if (frame.type == FRAME_HELLO)
        check_hello(&frame);
    else
        check_entry(&frame);
    uint8_t head[FRAME_HEAD];
    frame_write_head(head, &frame);
    if (memcmp(head, data + 1, FRAME_HEAD) != 0)
        abort();
    return 0;
}
