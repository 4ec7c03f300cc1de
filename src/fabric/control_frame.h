/* control_frame: the frames of the control channel.
 *
 * A frame is a head of 16 bytes (little endian: u32 body length, u16 type, u16 status, u64 id) and
 * a body. The id of a request comes back in its reply; frames without a reply carry 0. A table
 * bounds each type's body, so that nobody can make the other side allocate more. */
#ifndef RAIA_FABRIC_CONTROL_FRAME_H
#define RAIA_FABRIC_CONTROL_FRAME_H

#include "base/base.h"

enum {
    FRAME_HEAD = 16,
    FRAME_KEY_MAX = 1024,
    FRAME_TOKEN_MAX = 256,
    FRAME_VALUE_MAX = 64 << 10,
    FRAME_CHUNK_MAX = 1 << 20,
    FRAME_EVENT_MAX = 4 << 20,
    FRAME_TEXT_MAX = 4 << 10,
    FRAME_REPLY_MAX = 64 << 20, /* a gather of many ranks */
};

/* X(name, from: r = rank, s = server, smallest body, largest body) */
#define FRAME_MAP(X)                                                                               \
    X(HELLO, 'r', 13, 12 + FRAME_TOKEN_MAX)                 /* "raiactl1", u32 rank, token */      \
    X(PUT, 'r', 3, 2 + FRAME_KEY_MAX + FRAME_VALUE_MAX)     /* u16 length, key, value */           \
    X(GET, 'r', 1, FRAME_KEY_MAX)                           /* key */                              \
    X(PEEK, 'r', 1, FRAME_KEY_MAX)                          /* key */                              \
    X(GATHER, 'r', 5, 4 + FRAME_KEY_MAX)                    /* u32 size, key: KEY/0..KEY/size-1 */ \
    X(EVENT, 'r', 2, FRAME_EVENT_MAX)                       /* JSON */                             \
    X(CHUNK, 'r', 11, 10 + FRAME_KEY_MAX + FRAME_CHUNK_MAX) /* u16, name, u64 offset, bytes */     \
    X(BYE, 'r', 0, 0)                                       /* the rank leaves in order */         \
    X(REPLY, 's', 0, FRAME_REPLY_MAX)                       /* value, or text of a failure */      \
    X(ABORT, 's', 0, FRAME_TEXT_MAX)                        /* reason */

enum frame_type {
    FRAME_NONE,
#define FRAME_X(name, from, min, max) FRAME_##name,
    FRAME_MAP(FRAME_X)
#undef FRAME_X
        FRAME_TYPE_COUNT
};

struct frame {
    enum frame_type type;
    raia_status status; /* of a reply */
    uint64_t id;
    const uint8_t *body; /* borrowed */
    size_t len;
};

/* Reads a head from side FROM ('r' or 's'): type, status, id and len; RAIA_EFORMAT when the type is
 * not that side's or the length is out of its bounds. */
raia_status frame_read_head(const uint8_t head[FRAME_HEAD], char from, struct frame *out);
void frame_write_head(uint8_t head[FRAME_HEAD], const struct frame *frame);

/* A hello's parts; TOKEN is borrowed and not terminated. */
struct frame_hello {
    uint32_t rank;
    const char *token;
    size_t token_len;
};
raia_status frame_read_hello(const struct frame *frame, struct frame_hello *out);
/* *LEN bytes into BODY (12 + FRAME_TOKEN_MAX); the caller has checked the token's length. */
void frame_write_hello(uint8_t *body, size_t *len, uint32_t rank, const char *token);

/* The key of a get, size (OFFSET) and key of a gather, the key and value of a put, the name, offset
 * and bytes of a chunk. */
struct frame_entry {
    char key[FRAME_KEY_MAX + 1]; /* printable, no control characters */
    uint64_t offset;
    const uint8_t *data;
    size_t len;
};
raia_status frame_read_entry(const struct frame *frame, struct frame_entry *out);
/* What comes before the data of a put (OFFSET not written) or chunk: *LEN bytes into PREFIX, which
 * holds 10 + FRAME_KEY_MAX. */
void frame_write_prefix(uint8_t *prefix, size_t *len, enum frame_type type, const char *key,
                        uint64_t offset);

/* What comes before the key of a gather: 4 bytes. */
void frame_write_size(uint8_t *prefix, uint32_t size);

/* A chunk's name is relative: safe components joined by '/'. */
bool frame_path_is_safe(const char *name);
/* Compares without telling by its time where the two differ. */
bool frame_token_equal(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
