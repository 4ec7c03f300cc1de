/* st_priv: what the files of the safetensors reader share. */
#ifndef RAIA_MODEL_ST_PRIV_H
#define RAIA_MODEL_ST_PRIV_H

#include "model/model.h"

/* The library's own cap; the hub's parser has a lower one. */
enum { ST_HEADER_MAX = 100000000, ST_FILES_MAX = 10000 };

struct st_file {
    char *path;
    int fd;
    uint64_t size;
};

struct st_folder {
    struct st_file *file;
    int files;
    struct st_tensor *tensor;
    int tensors, capacity;
};

/* Reads and validates the header of folder->file[INDEX] and appends its tensors, in the order of
 * their offsets. */
raia_status st_file_read_header(struct st_folder *folder, int index);

/* "F32" and the rest of the format's types. */
struct st_type {
    const char *tag;
    unsigned bits;
    raia_dtype dtype; /* RAIA_DTYPE_COUNT: none of raia's */
};
const struct st_type *st_type_find(const char *tag); /* NULL: not a type of the format */
const char *st_type_tag(raia_dtype dtype);           /* NULL: has none */

/* COUNT elements: SRC (of FROM) to DST (of TO), each f32, bf16 or f16; not overlapping. */
bool st_converts(raia_dtype from, raia_dtype to);
void st_convert(const void *src, raia_dtype from, void *dst, raia_dtype to, size_t count);

/* A foreign name made fit for a message: clipped, controls as '?'. OUT has ST_NAME_SHOWN bytes and
 * is returned. */
enum { ST_NAME_SHOWN = 100 };
const char *st_show(char *out, const char *name);

#endif
