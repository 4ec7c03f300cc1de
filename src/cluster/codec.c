#include "cluster/codec.h"

#include <ctype.h>
#include <nettle/base64.h>
#include <nettle/memops.h>
#include <nettle/sha1.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool percent_decode(char *text)
{
    char *out = text;
    for (const char *in = text; *in != '\0'; in++) {
        if (*in != '%') {
            *out++ = *in;
            continue;
        }
        int high = hex_digit(in[1]);
        int low = high < 0 ? -1 : hex_digit(in[2]);
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *out++ = (char)(high * 16 + low);
        in += 2;
    }
    *out = '\0';
    return true;
}

char *percent_encode(const char *text)
{
    static const char digits[] = "0123456789ABCDEF";
    char *out = malloc(strlen(text) * 3 + 1);
    if (out == NULL)
        return NULL;
    char *at = out;
    for (const unsigned char *in = (const unsigned char *)text; *in != '\0'; in++) {
        if (isalnum(*in) || strchr("-._~", *in) != NULL) {
            *at++ = (char)*in;
            continue;
        }
        *at++ = '%';
        *at++ = digits[*in >> 4];
        *at++ = digits[*in & 15];
    }
    *at = '\0';
    return out;
}

void sha1_bytes(const void *data, size_t len, uint8_t out[SHA1_BYTES])
{
    struct sha1_ctx hash;
    sha1_init(&hash);
    sha1_update(&hash, len, data);
    sha1_digest(&hash, SHA1_BYTES, out);
}

void hex_encode(const uint8_t *data, size_t bytes, char *out)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        out[2 * i] = digits[data[i] >> 4];
        out[2 * i + 1] = digits[data[i] & 15];
    }
    out[2 * bytes] = '\0';
}

void ws_accept_of(const char *key, char out[WS_ACCEPT])
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455, 1.3 */
    uint8_t digest[SHA1_BYTES];
    struct sha1_ctx hash;
    sha1_init(&hash);
    sha1_update(&hash, strlen(key), (const uint8_t *)key);
    sha1_update(&hash, sizeof guid - 1, (const uint8_t *)guid);
    sha1_digest(&hash, SHA1_BYTES, digest);
    base64_encode_raw(out, SHA1_BYTES, digest);
    out[BASE64_ENCODE_RAW_LENGTH(SHA1_BYTES)] = '\0';
}

raia_status ws_random_key(char out[WS_KEY + 1])
{
    uint8_t nonce[16];
    if (getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
        return fail(RAIA_EIO, "the kernel gave no random bytes");
    base64_encode_raw(out, sizeof nonce, nonce);
    out[BASE64_ENCODE_RAW_LENGTH(sizeof nonce)] = '\0';
    return RAIA_OK;
}

/* Length of the valid UTF-8 character at DATA, 0 when there is none (RFC 3629). */
static size_t utf8_length(const unsigned char *d, size_t len)
{
    size_t want = d[0] < 0x80                    ? 1
                  : d[0] >= 0xc2 && d[0] <= 0xdf ? 2
                  : (d[0] & 0xf0) == 0xe0        ? 3
                                                 : 4;
    if (d[0] == 0 || want > len || (want == 4 && (d[0] < 0xf0 || d[0] > 0xf4)))
        return 0;
    for (size_t i = 1; i < want; i++)
        if ((d[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (d[0] == 0xe0 && d[1] < 0xa0) || (d[0] == 0xf0 && d[1] < 0x90);
    bool outside = (d[0] == 0xed && d[1] > 0x9f) || (d[0] == 0xf4 && d[1] > 0x8f);
    return overlong || outside ? 0 : want;
}

raia_status utf8_append(struct buf *out, const char *data, size_t len)
{
    const unsigned char *d = (const unsigned char *)data;
    size_t from = 0, at = 0;
    while (at < len) {
        size_t n = utf8_length(d + at, len - at);
        if (n > 0) {
            at += n;
            continue;
        }
        RAIA_TRY(buf_append(out, data + from, at - from));
        RAIA_TRY(buf_append(out, "\xef\xbf\xbd", 3));
        from = ++at;
    }
    return buf_append(out, data + from, at - from);
}

size_t utf8_floor(const char *data, size_t len)
{
    size_t at = len;
    while (at > 0 && len - at < 4 && ((unsigned char)data[at - 1] & 0xc0) == 0x80)
        at--;
    if (at == 0 || len - at >= 4)
        return len;
    return utf8_length((const unsigned char *)data + at - 1, len - at + 1) > 0 ||
                   (unsigned char)data[at - 1] < 0xc2
               ? len
               : at - 1;
}

void safe_name(const char *id, char out[SAFE_NAME])
{
    size_t len = strlen(id);
    bool plain = len > 0 && len < SAFE_NAME - 4 && id[0] != '.';
    for (size_t i = 0; plain && i < len; i++)
        plain = isalnum((unsigned char)id[i]) || strchr("-._", id[i]) != NULL;
    if (plain) {
        memcpy(out, id, len + 1);
        return;
    }
    uint8_t digest[SHA1_BYTES];
    sha1_bytes(id, len, digest);
    memcpy(out, "sha1~", 5); /* '~' is in no plain name, so that the two kinds cannot meet */
    hex_encode(digest, SHA1_BYTES, out + 5);
}

bool same_secret(const char *a, const char *b)
{
    size_t len = strlen(a);
    return len == strlen(b) && memeql_sec(a, b, len);
}
