/* st_file: the header of one safetensors file. Nothing in it is believed: offsets must tile the
 * file exactly, and sizes must be what shapes and types say. Offsets need no alignment, since
 * tensors are read and not mapped. */
#include "model/st_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct header {
    struct st_folder *folder;
    int file;
    const char *path;
    uint64_t data_start, data_bytes;
};

static raia_status damaged(const struct header *h, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static raia_status damaged(const struct header *h, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(RAIA_EFORMAT,
                "%s: %s; the file is damaged or not written to its end: fetch or save it again",
                h->path, text);
}

static raia_status tensor_damaged(const struct header *h, const char *name, const char *what)
{
    char shown[ST_NAME_SHOWN];
    return damaged(h, "tensor \"%s\": %s", st_show(shown, name), what);
}

static raia_status tensor_limit(const struct header *h, const char *name, const char *what)
{
    char shown[ST_NAME_SHOWN];
    return fail(RAIA_EUNSUPPORTED, "%s: tensor \"%s\": %s", h->path, st_show(shown, name), what);
}

/* ---- one entry ---- */

static raia_status read_type(const struct header *h, const char *name, const json_t *entry,
                             const struct st_type **out)
{
    const char *tag = json_string_value(json_object_get(entry, "dtype"));
    if (tag == NULL)
        return tensor_damaged(h, name, "\"dtype\" is missing or not a string");
    *out = st_type_find(tag);
    if (*out != NULL)
        return RAIA_OK;
    char text[ST_NAME_SHOWN + 64], shown[ST_NAME_SHOWN];
    snprintf(text, sizeof text, "dtype \"%s\" is none of the format's", st_show(shown, tag));
    return tensor_damaged(h, name, text);
}

static raia_status read_shape(const struct header *h, const char *name, const json_t *entry,
                              struct st_tensor *out)
{
    enum { DIMS_MAX = sizeof out->shape / sizeof out->shape[0] };
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return tensor_damaged(h, name, "\"shape\" is missing or not a list");
    if (json_array_size(shape) > DIMS_MAX)
        return tensor_limit(h, name, "has more than 8 dimensions (supported: up to 8)");
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *dim = json_array_get(shape, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return tensor_damaged(h, name, "\"shape\" holds something else than sizes");
        out->shape[i] = (uint64_t)json_integer_value(dim);
    }
    out->dims = (int)json_array_size(shape);
    return RAIA_OK;
}

/* Bytes that shape and type ask for. */
static raia_status shape_bytes(const struct header *h, const char *name, const struct st_type *type,
                               const struct st_tensor *tensor, uint64_t *out)
{
    uint64_t bits = type->bits;
    for (int i = 0; i < tensor->dims; i++)
        if (__builtin_mul_overflow(bits, tensor->shape[i], &bits))
            return tensor_damaged(h, name, "the size of its shape overflows");
    if (bits % 8 != 0)
        return tensor_damaged(h, name, "it ends within a byte");
    *out = bits / 8;
    return RAIA_OK;
}

static raia_status read_offsets(const struct header *h, const char *name, const json_t *entry,
                                struct st_tensor *out)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return tensor_damaged(h, name, "\"data_offsets\" is not a pair of integers");
    int64_t begin = json_integer_value(json_array_get(offsets, 0));
    int64_t end = json_integer_value(json_array_get(offsets, 1));
    if (begin < 0 || end < begin)
        return tensor_damaged(h, name, "\"data_offsets\" is negative or runs backwards");
    if ((uint64_t)end > h->data_bytes) {
        char text[160];
        snprintf(text, sizeof text,
                 "ends at byte %lld of the data, but the file has only %llu bytes of data",
                 (long long)end, (unsigned long long)h->data_bytes);
        return tensor_damaged(h, name, text);
    }
    out->offset = h->data_start + (uint64_t)begin;
    out->bytes = (uint64_t)(end - begin);
    return RAIA_OK;
}

static raia_status read_entry(const struct header *h, const char *name, const json_t *entry,
                              struct st_tensor *out)
{
    const struct st_type *type = NULL;
    uint64_t bytes = 0;
    *out = (struct st_tensor){ .file = h->file };
    if (!json_is_object(entry))
        return tensor_damaged(h, name, "its entry is not an object");
    RAIA_TRY(read_type(h, name, entry, &type));
    /* NOLINTBEGIN(clang-analyzer-core.NullDereference): a type was read */
    RAIA_TRY(read_shape(h, name, entry, out));
    RAIA_TRY(shape_bytes(h, name, type, out, &bytes));
    RAIA_TRY(read_offsets(h, name, entry, out));
    if (out->bytes != bytes) {
        char text[160];
        snprintf(text, sizeof text, "has %llu bytes, but its shape in %s takes %llu",
                 (unsigned long long)out->bytes, type->tag, (unsigned long long)bytes);
        return tensor_damaged(h, name, text);
    }
    out->tag = type->tag;
    out->dtype = type->dtype;
    /* NOLINTEND(clang-analyzer-core.NullDereference) */
    out->name = strdup(name);
    return out->name != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "%s: no memory for a name", h->path);
}

static raia_status check_metadata(const struct header *h, const json_t *metadata)
{
    const char *key;
    json_t *value;
    if (json_is_null(metadata))
        return RAIA_OK;
    if (!json_is_object(metadata))
        return damaged(h, "\"__metadata__\" is not an object");
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value))
            return damaged(h, "\"__metadata__\" holds something else than strings");
    }
    return RAIA_OK;
}

/* ---- all entries ---- */

static int by_offset(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Tensors cover the data without hole or overlap. */
static raia_status check_cover(const struct header *h, int first)
{
    const struct st_tensor *tensor = h->folder->tensor;
    uint64_t end = h->data_start;
    char text[256], shown[ST_NAME_SHOWN];
    for (int i = first; i < h->folder->tensors; i++) {
        if (tensor[i].offset < end) {
            snprintf(text, sizeof text, "overlaps tensor \"%s\"",
                     st_show(shown, tensor[i - 1].name));
            return tensor_damaged(h, tensor[i].name, text);
        }
        if (tensor[i].offset > end) {
            snprintf(text, sizeof text, "there is a hole of %llu bytes before it",
                     (unsigned long long)(tensor[i].offset - end));
            return tensor_damaged(h, tensor[i].name, text);
        }
        end += tensor[i].bytes;
    }
    if (end != h->data_start + h->data_bytes)
        return damaged(h, "%llu bytes follow the last tensor",
                       (unsigned long long)(h->data_start + h->data_bytes - end));
    return RAIA_OK;
}

static raia_status make_room(struct st_folder *folder, size_t more)
{
    size_t wanted = (size_t)folder->tensors + more;
    if (wanted > INT32_MAX / 2)
        return fail(RAIA_EUNSUPPORTED, "too many tensors");
    if (wanted <= (size_t)folder->capacity)
        return RAIA_OK;
    struct st_tensor *grown = realloc(folder->tensor, wanted * sizeof *grown);
    if (grown == NULL)
        return fail(RAIA_ENOMEM, "no memory for %zu tensors' names", wanted);
    folder->tensor = grown;
    folder->capacity = (int)wanted;
    return RAIA_OK;
}

static raia_status read_entries(const struct header *h, const json_t *json)
{
    const char *name;
    json_t *entry;
    struct st_folder *folder = h->folder;
    int first = folder->tensors;
    if (!json_is_object(json))
        return damaged(h, "the header is not a JSON object");
    RAIA_TRY(make_room(folder, json_object_size(json)));
    json_object_foreach((json_t *)json, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            RAIA_TRY(check_metadata(h, entry));
            continue;
        }
        RAIA_TRY(read_entry(h, name, entry, &folder->tensor[folder->tensors]));
        folder->tensors++;
    }
    int count = folder->tensors - first;
    if (count > 1)
        qsort(folder->tensor + first, (size_t)count, sizeof *folder->tensor, by_offset);
    return check_cover(h, first);
}

/* The header's length, checked against the file before anything of that size is allocated. */
static raia_status read_length(const struct header *h, const struct st_file *file, uint64_t *out)
{
    unsigned char bytes[8];
    if (file->size < sizeof bytes)
        return damaged(h, "has %llu bytes, too few for a header", (unsigned long long)file->size);
    RAIA_TRY(file_pread(file->fd, bytes, sizeof bytes, 0, file->path));
    uint64_t len = 0;
    for (int i = 7; i >= 0; i--)
        len = len << 8 | bytes[i];
    if (len > file->size - sizeof bytes)
        return damaged(h, "its header claims %llu bytes, but the file has %llu",
                       (unsigned long long)len, (unsigned long long)file->size);
    if (len > ST_HEADER_MAX)
        return fail(RAIA_EFORMAT, "%s: its header has %llu bytes, more than the format's %d",
                    file->path, (unsigned long long)len, ST_HEADER_MAX);
    *out = len;
    return RAIA_OK;
}

static raia_status read_text(const struct header *h, const struct st_file *file, char *text,
                             size_t len)
{
    RAIA_TRY(file_pread(file->fd, text, len, 8, file->path));
    size_t start = strspn(text, " \t\r\n");
    if (start == len || text[start] != '{')
        return damaged(h, "the header does not start with '{'");
    json_t *json = NULL;
    raia_status status = json_parse(text, len, len, "header", &json);
    if (status == RAIA_EFORMAT)
        return damaged(h, "%s", raia_error());
    if (status == RAIA_OK)
        status = read_entries(h, json);
    json_decref(json);
    return status;
}

raia_status st_file_read_header(struct st_folder *folder, int index)
{
    const struct st_file *file = &folder->file[index];
    struct header h = { .folder = folder, .file = index, .path = file->path };
    uint64_t len = 0;
    RAIA_TRY(read_length(&h, file, &len));
    h.data_start = len + 8;
    h.data_bytes = file->size - h.data_start;
    char *text = malloc(len + 1);
    if (text == NULL)
        return fail(RAIA_ENOMEM, "%s: no memory for a header of %llu bytes", file->path,
                    (unsigned long long)len);
    text[len] = '\0';
    raia_status status = read_text(&h, file, text, len);
    free(text);
    return status;
}
