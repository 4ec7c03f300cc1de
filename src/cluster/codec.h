/* codec: the small encodings of HTTP: percent, base64, SHA-1, UTF-8; and names made safe for files.
 */
#ifndef RAIA_CLUSTER_CODEC_H
#define RAIA_CLUSTER_CODEC_H

#include "base/base.h"

/* Decodes %XX of TEXT in place. False for a broken escape or a NUL byte. */
bool percent_decode(char *text);
/* malloc'd TEXT with everything but letters, digits and "-._~" escaped; NULL when out of memory. */
char *percent_encode(const char *text);

enum { SHA1_BYTES = 20, SHA1_HEX = 41 };
void sha1_bytes(const void *data, size_t len, uint8_t out[SHA1_BYTES]);
/* Lower-case hex of BYTES bytes and a NUL. */
void hex_encode(const uint8_t *data, size_t bytes, char *out);

enum {
    WS_KEY = 24,
    WS_ACCEPT = 29
}; /* lengths of the WebSocket handshake's values, NUL included in the latter */
/* RFC 6455's answer to a client's key. */
void ws_accept_of(const char *key, char out[WS_ACCEPT]);
/* A fresh random key (WS_KEY characters and a NUL). */
raia_status ws_random_key(char out[WS_KEY + 1]);

/* Appends LEN bytes of DATA as valid UTF-8: what is malformed becomes U+FFFD, NUL too. */
raia_status utf8_append(struct buf *out, const char *data, size_t len);
/* Largest n <= LEN such that no character of DATA is cut at n. */
size_t utf8_floor(const char *data, size_t len);

/* A file name for ID: ID itself when it is a short plain component, else a hash of it. */
enum { SAFE_NAME = 104 };
void safe_name(const char *id, char out[SAFE_NAME]);

/* True when both strings are equal; takes the same time wherever they differ. */
bool same_secret(const char *a, const char *b);

#endif
