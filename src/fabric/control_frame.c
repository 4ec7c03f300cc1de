#include "fabric/control_frame.h"

#include <endian.h>
#include <string.h>

static const char hello_magic[8] = { 'r', 'a', 'i', 'a', 'c', 't', 'l', '1' };

static const struct {
    const char *name;
    char from;
    size_t min, max;
} kinds[FRAME_TYPE_COUNT] = {
#define FRAME_X(name, from, min, max) [FRAME_##name] = { #name, from, min, max },
    FRAME_MAP(FRAME_X)
#undef FRAME_X
};

static uint16_t get_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return le16toh(value);
}

static uint32_t get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return le32toh(value);
}

static uint64_t get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return le64toh(value);
}

static void put_u16(uint8_t *at, uint16_t value)
{
    value = htole16(value);
    memcpy(at, &value, sizeof value);
}

static void put_u32(uint8_t *at, uint32_t value)
{
    value = htole32(value);
    memcpy(at, &value, sizeof value);
}

static void put_u64(uint8_t *at, uint64_t value)
{
    value = htole64(value);
    memcpy(at, &value, sizeof value);
}

raia_status frame_read_head(const uint8_t head[FRAME_HEAD], char from, struct frame *out)
{
    uint32_t len = get_u32(head);
    uint16_t type = get_u16(head + 4), status = get_u16(head + 6);
    if (type >= FRAME_TYPE_COUNT || kinds[type].from != from)
        return fail(RAIA_EFORMAT, "control frame of unknown type %u", type);
    if (len < kinds[type].min || len > kinds[type].max)
        return fail(RAIA_EFORMAT, "control frame %s of %u bytes, allowed are %zu to %zu",
                    kinds[type].name, len, kinds[type].min, kinds[type].max);
    if (status >= RAIA_STATUS_COUNT)
        return fail(RAIA_EFORMAT, "control frame %s with unknown status %u", kinds[type].name,
                    status);
    *out = (struct frame){ type, (raia_status)status, get_u64(head + 8), NULL, len };
    return RAIA_OK;
}

void frame_write_head(uint8_t head[FRAME_HEAD], const struct frame *frame)
{
    put_u32(head, (uint32_t)frame->len);
    put_u16(head + 4, (uint16_t)frame->type);
    put_u16(head + 6, (uint16_t)frame->status);
    put_u64(head + 8, frame->id);
}

raia_status frame_read_hello(const struct frame *frame, struct frame_hello *out)
{
    if (frame->type != FRAME_HELLO || memcmp(frame->body, hello_magic, sizeof hello_magic) != 0)
        return fail(RAIA_EFORMAT, "control connection does not begin with a hello");
    *out = (struct frame_hello){ get_u32(frame->body + 8), (const char *)frame->body + 12,
                                 frame->len - 12 };
    return RAIA_OK;
}

void frame_write_hello(uint8_t *body, size_t *len, uint32_t rank, const char *token)
{
    memcpy(body, hello_magic, sizeof hello_magic);
    put_u32(body + 8, rank);
    *len = strlen(token);
    memcpy(body + 12, token, *len);
    *len += 12;
}

static raia_status read_key(const uint8_t *text, size_t len, char out[FRAME_KEY_MAX + 1])
{
    if (len == 0 || len > FRAME_KEY_MAX)
        return fail(RAIA_EFORMAT, "control key of %zu bytes, allowed are 1 to %d", len,
                    FRAME_KEY_MAX);
    for (size_t i = 0; i < len; i++)
        if (text[i] < 0x20 || text[i] == 0x7f)
            return fail(RAIA_EFORMAT, "control key has a control character at byte %zu", i);
    memcpy(out, text, len);
    out[len] = '\0';
    return RAIA_OK;
}

raia_status frame_read_entry(const struct frame *frame, struct frame_entry *out)
{
    *out = (struct frame_entry){ .data = frame->body + frame->len };
    if (frame->type == FRAME_GATHER) {
        out->offset = get_u32(frame->body);
        return read_key(frame->body + 4, frame->len - 4, out->key);
    }
    if (frame->type != FRAME_PUT && frame->type != FRAME_CHUNK)
        return read_key(frame->body, frame->len, out->key);
    size_t key_len = get_u16(frame->body);
    size_t after = 2 + key_len + (frame->type == FRAME_CHUNK ? sizeof(uint64_t) : 0);
    if (after > frame->len)
        return fail(RAIA_EFORMAT, "control frame of %zu bytes is too short for a key of %zu",
                    frame->len, key_len);
    RAIA_TRY(read_key(frame->body + 2, key_len, out->key));
    if (frame->type == FRAME_CHUNK)
        out->offset = get_u64(frame->body + 2 + key_len);
    out->data = frame->body + after;
    out->len = frame->len - after;
    size_t most = frame->type == FRAME_CHUNK ? FRAME_CHUNK_MAX : FRAME_VALUE_MAX;
    if (out->len > most)
        return fail(RAIA_EFORMAT, "control value of %zu bytes, allowed are %zu", out->len, most);
    return RAIA_OK;
}

void frame_write_prefix(uint8_t *prefix, size_t *len, enum frame_type type, const char *key,
                        uint64_t offset)
{
    size_t key_len = strlen(key);
    put_u16(prefix, (uint16_t)key_len);
    memcpy(prefix + 2, key, key_len);
    *len = 2 + key_len;
    if (type == FRAME_CHUNK) {
        put_u64(prefix + *len, offset);
        *len += sizeof offset;
    }
}

void frame_write_size(uint8_t *prefix, uint32_t size)
{
    put_u32(prefix, size);
}

bool frame_path_is_safe(const char *name)
{
    char part[256];
    for (;;) {
        size_t len = strcspn(name, "/");
        if (len >= sizeof part)
            return false;
        memcpy(part, name, len);
        part[len] = '\0';
        if (!path_is_component(part))
            return false;
        if (name[len] == '\0')
            return true;
        name += len + 1;
    }
}

bool frame_token_equal(const char *a, size_t a_len, const char *b, size_t b_len)
{
    volatile unsigned char differs = a_len != b_len;
    for (size_t i = 0; i < a_len; i++)
        differs = (unsigned char)(differs | (a[i] ^ b[b_len == 0 ? 0 : i % b_len]));
    return differs == 0;
}
