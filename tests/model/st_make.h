/* st_make: hand-made safetensors files for tests. */
#ifndef RAIA_TESTS_ST_MAKE_H
#define RAIA_TESTS_ST_MAKE_H

#include "base/base.h"
#include "check.h"

/* A temporary folder of this test, removed by st_made_end. */
static char *st_dir;

static inline const char *st_made_path(const char *name)
{
    static char paths[4][512];
    static int next;
    if (st_dir == NULL)
        CHECK_OK(dir_make_temp("raia-st", &st_dir));
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", st_dir, name);
    return path;
}

static inline void st_made_end(void)
{
    CHECK_OK(dir_remove(st_dir));
    free(st_dir);
    st_dir = NULL;
}

/* NAME: 8 bytes that say CLAIM, then HEADER, then BYTES bytes 0, 1, 2, … of data. */
static inline const char *st_make_claiming(const char *name, uint64_t claim, const char *header,
                                           size_t header_len, size_t bytes)
{
    const char *path = st_made_path(name);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    for (int i = 0; i < 8; i++)
        fputc((int)(claim >> (8 * i) & 0xff), file);
    CHECK_INT(fwrite(header, 1, header_len, file), header_len);
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(i & 0xff), file);
    CHECK_INT(fclose(file), 0);
    return path;
}

static inline const char *st_make(const char *name, const char *header, size_t bytes)
{
    return st_make_claiming(name, strlen(header), header, strlen(header), bytes);
}

static inline void st_write_text(const char *name, const char *text)
{
    CHECK_OK(file_write(st_made_path(name), text, strlen(text), 0644));
}

#endif
