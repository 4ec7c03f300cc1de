#include "model/st_priv.h"
#include "tensor/scalar.h"

#include <string.h>

static const struct st_type types[] = {
    { "F32", 32, RAIA_F32 },
    { "BF16", 16, RAIA_BF16 },
    { "F16", 16, RAIA_F16 },
    { "I32", 32, RAIA_I32 },
    { "U32", 32, RAIA_U32 },
    { "I64", 64, RAIA_I64 },
    { "U8", 8, RAIA_U8 },
    { "BOOL", 8, RAIA_DTYPE_COUNT },
    { "I8", 8, RAIA_DTYPE_COUNT },
    { "I16", 16, RAIA_DTYPE_COUNT },
    { "U16", 16, RAIA_DTYPE_COUNT },
    { "U64", 64, RAIA_DTYPE_COUNT },
    { "F64", 64, RAIA_DTYPE_COUNT },
    { "C64", 64, RAIA_DTYPE_COUNT },
    { "F8_E5M2", 8, RAIA_DTYPE_COUNT },
    { "F8_E4M3", 8, RAIA_DTYPE_COUNT },
    { "F8_E8M0", 8, RAIA_DTYPE_COUNT },
    { "F8_E4M3FNUZ", 8, RAIA_DTYPE_COUNT },
    { "F8_E5M2FNUZ", 8, RAIA_DTYPE_COUNT },
    { "F6_E2M3", 6, RAIA_DTYPE_COUNT },
    { "F6_E3M2", 6, RAIA_DTYPE_COUNT },
    { "F4", 4, RAIA_DTYPE_COUNT },
};
enum { TYPES = sizeof types / sizeof types[0] };

const struct st_type *st_type_find(const char *tag)
{
    for (int i = 0; i < TYPES; i++)
        if (strcmp(types[i].tag, tag) == 0)
            return &types[i];
    return NULL;
}

const char *st_type_tag(raia_dtype dtype)
{
    for (int i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype)
            return types[i].tag;
    return NULL;
}

const char *st_show(char *out, const char *name)
{
    size_t i = 0;
    for (; i < ST_NAME_SHOWN - 1 && name[i] != '\0'; i++)
        out[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
    out[i] = '\0';
    return out;
}

/* ---- conversion, through f32 ---- */

static void load_bf16(const uint16_t *src, float *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = bf16_load(src[i]);
}

static void load_f16(const uint16_t *src, float *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = f16_load(src[i]);
}

static void store_bf16(const float *src, uint16_t *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = bf16_round(src[i]);
}

static void store_f16(const float *src, uint16_t *dst, size_t count)
{
    for (size_t i = 0; i < count; i++)
        dst[i] = f16_round(src[i]);
}

static void load(const void *src, raia_dtype from, float *dst, size_t count)
{
    if (from == RAIA_F32)
        memcpy(dst, src, count * sizeof *dst);
    else if (from == RAIA_BF16)
        load_bf16(src, dst, count);
    else
        load_f16(src, dst, count);
}

static void store(const float *src, void *dst, raia_dtype to, size_t count)
{
    if (to == RAIA_F32)
        memcpy(dst, src, count * sizeof *src);
    else if (to == RAIA_BF16)
        store_bf16(src, dst, count);
    else
        store_f16(src, dst, count);
}

static bool is_float(raia_dtype dtype)
{
    return dtype == RAIA_F32 || dtype == RAIA_BF16 || dtype == RAIA_F16;
}

bool st_converts(raia_dtype from, raia_dtype to)
{
    return is_float(from) && is_float(to);
}

void st_convert(const void *src, raia_dtype from, void *dst, raia_dtype to, size_t count)
{
    enum { BLOCK = 2048 };
    float block[BLOCK];
    size_t in = raia_dtype_size(from), out = raia_dtype_size(to);
    for (size_t done = 0; done < count;) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        load((const char *)src + done * in, from, block, n);
        store(block, (char *)dst + done * out, to, n);
        done += n;
    }
}
