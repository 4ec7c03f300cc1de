/* A rank's side of raia_model_save. The driver makes a folder aside with a marker in it: a rank
 * that sees the marker shares the driver's disk and writes there; another sends its pieces. */
#include "train/train_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 20, NONCE_BYTES = 16 };

struct saving {
    raia_context *context;
    raia_model *model;
    struct st_plan *plan;
    raia_dtype dtype;
    const char *temp; /* the driver's folder aside */
    bool shared;      /* this rank sees it */
    int file, fd;     /* the weights file that is open; -1 */
};

/* ---- pieces ---- */

static raia_status open_file(struct saving *s, int file)
{
    if (s->fd >= 0 && s->file == file)
        return RAIA_OK;
    if (s->fd >= 0)
        close(s->fd);
    char *path = path_join(s->temp, st_plan_file_name(s->plan, file));
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    s->file = file;
    s->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    raia_status status =
        s->fd < 0 ? fail(RAIA_EIO, "cannot write %s: %s", path, strerror(errno)) : RAIA_OK;
    free(path);
    return status;
}

static raia_status send_file_part(struct saving *s, const char *name, uint64_t offset,
                                  const void *data, size_t len)
{
    char full[512];
    snprintf(full, sizeof full, "save/%s", name);
    for (size_t at = 0; at < len || len == 0; at += PIECE) {
        size_t n = len - at < PIECE ? len - at : PIECE;
        RAIA_TRY(control_chunk(s->context->control, full, offset + at, (const char *)data + at, n));
        if (len == 0)
            break;
    }
    return RAIA_OK;
}

static raia_status write_weights(struct saving *s, int file, uint64_t offset, const void *data,
                                 size_t len)
{
    const char *name = st_plan_file_name(s->plan, file);
    if (!s->shared)
        return send_file_part(s, name, offset, data, len);
    RAIA_TRY(open_file(s, file));
    return file_pwrite(s->fd, data, len, offset, name);
}

static raia_status write_piece(void *self, int param, uint64_t first, size_t count,
                               const void *data)
{
    struct saving *s = self;
    int file;
    uint64_t offset;
    size_t size = raia_dtype_size(s->dtype);
    st_plan_place(s->plan, param, &file, &offset);
    return write_weights(s, file, offset + first * size, data, count * size);
}

/* ---- what rank 0 writes besides ---- */

static raia_status write_headers(struct saving *s)
{
    for (int f = 0; f < st_plan_files(s->plan); f++) {
        size_t len;
        const void *header = st_plan_header(s->plan, f, &len);
        RAIA_TRY(write_weights(s, f, 0, header, len));
    }
    return RAIA_OK;
}

static raia_status write_small(struct saving *s, const char *dir)
{
    struct model_config config = s->model->config;
    config.dtype = s->dtype;
    if (s->model->dir != NULL)
        RAIA_TRY(model_copy_small_files(s->model->dir, dir));
    RAIA_TRY(model_save_config(&config, dir));
    const char *index = st_plan_index(s->plan);
    if (index == NULL)
        return RAIA_OK;
    char *path = path_join(dir, "model.safetensors.index.json");
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = file_write(path, index, strlen(index), 0666);
    free(path);
    return status;
}

static raia_status send_one(struct saving *s, const char *dir, const char *name)
{
    enum { SMALL_MAX = 256 << 20 };
    char *path = path_join(dir, name), *data = NULL;
    size_t len;
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = file_read(path, SMALL_MAX, &data, &len);
    if (status == RAIA_OK)
        status = send_file_part(s, name, 0, data, len);
    free(data);
    free(path);
    return status;
}

static raia_status send_folder(struct saving *s, const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return fail(RAIA_EIO, "cannot read %s: %s", dir, strerror(errno));
    raia_status status = RAIA_OK;
    for (struct dirent *e = readdir(d); e != NULL && status == RAIA_OK; e = readdir(d))
        if (e->d_name[0] != '.')
            status = send_one(s, dir, e->d_name);
    closedir(d);
    return status;
}

static raia_status write_rest(struct saving *s)
{
    RAIA_TRY(write_headers(s));
    if (s->shared)
        return write_small(s, s->temp);
    char *dir;
    RAIA_TRY(dir_make_temp("raia-save-", &dir));
    raia_status status = write_small(s, dir);
    if (status == RAIA_OK)
        status = send_folder(s, dir);
    dir_remove(dir);
    free(dir);
    return status;
}

/* ---- the whole ---- */

/* Rank 0 chooses the name aside, so that every rank knows it. */
static raia_status begin(raia_context *c, const char *dir, char **temp, char *nonce)
{
    if (c->world.rank == 0)
        RAIA_TRY(str_random_hex(nonce, NONCE_BYTES));
    RAIA_TRY(raia_broadcast(c->comm, nonce, 2 * NONCE_BYTES + 1, RAIA_U8, 0));
    *temp = str_format("%s.tmp-%.8s", dir, nonce);
    if (*temp == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    if (c->world.rank != 0)
        return RAIA_OK;
    char marker[2 * NONCE_BYTES + 2];
    snprintf(marker, sizeof marker, ".%s", nonce);
    json_t *json = json_pack("{s:s, s:s, s:s}", "dir", dir, "temp", *temp, "nonce", marker);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    raia_status status = text == NULL
                             ? fail(RAIA_ENOMEM, "out of memory")
                             : control_chunk(c->control, "save-begin", 0, text, strlen(text));
    free(text);
    json_decref(json);
    return status;
}

static bool sees_marker(const char *temp, const char *nonce)
{
    char *path = str_format("%s/.%s", temp, nonce);
    bool seen = path != NULL && file_exists(path);
    free(path);
    return seen;
}

static raia_status write_all(struct saving *s)
{
    RAIA_TRY(st_plan_new(&s->model->tree, s->dtype, 0, &s->plan));
    if (s->context->world.rank == 0)
        RAIA_TRY(write_rest(s));
    RAIA_TRY(shard_export(s->model->shard, s->dtype, write_piece, s));
    RAIA_TRY(raia_barrier(s->context->comm));
    if (s->context->world.rank == 0)
        RAIA_TRY(control_chunk(s->context->control, "save-end", 0, "", 0));
    return raia_barrier(s->context->comm);
}

raia_status raia_model_save(raia_context *context, raia_model *model, const char *dir)
{
    char *temp = NULL, nonce[2 * NONCE_BYTES + 1] = "";
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/')
        len--;
    char *bare = strndup(dir, len);
    if (bare == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    if (model->shard == NULL) {
        free(bare);
        return fail(RAIA_EINVAL, "raia_model_save: this model is not prepared");
    }
    raia_status status = begin(context, bare, &temp, nonce);
    if (status == RAIA_OK)
        status = raia_barrier(context->comm);
    struct saving s = {
        .context = context,
        .model = model,
        .dtype = model->precision == PRECISION_BF16 ? RAIA_BF16 : RAIA_F32,
        .temp = temp,
        .shared = status == RAIA_OK && sees_marker(temp, nonce),
        .fd = -1,
    };
    if (status == RAIA_OK)
        status = write_all(&s);
    if (s.fd >= 0)
        close(s.fd);
    st_plan_free(s.plan);
    free(temp);
    free(bare);
    return status;
}
