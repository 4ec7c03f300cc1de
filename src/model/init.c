#include "model/model.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 256 << 10 }; /* elements made and written at a time */

static raia_status fill_ones(struct device *device, size_t count, raia_dtype dtype, void *out)
{
    enum { BLOCK = 1024 };
    union {
        float wide[BLOCK];
        uint16_t narrow[BLOCK];
    } block;
    size_t size = raia_dtype_size(dtype);
    for (int i = 0; i < BLOCK; i++) {
        if (dtype == RAIA_F32)
            block.wide[i] = 1.0f;
        else
            block.narrow[i] = dtype == RAIA_BF16 ? bf16_from_f32(1.0f) : f16_from_f32(1.0f);
    }
    for (size_t done = 0; done < count; done += BLOCK) {
        size_t n = count - done < BLOCK ? count - done : BLOCK;
        RAIA_TRY(device->ops->copy(device, (char *)out + done * size, &block, n * size));
    }
    return RAIA_OK;
}

raia_status param_fill(struct device *device, const struct param *param, double std, uint64_t seed,
                       uint64_t first, size_t count, raia_dtype dtype, void *out)
{
    if (dtype != RAIA_F32 && dtype != RAIA_BF16 && dtype != RAIA_F16)
        return fail(RAIA_EINVAL, "\"%s\" is not made as %s (f32, bf16 or f16)", param->name,
                    raia_dtype_name(dtype));
    if (first > param->count || count > param->count - first)
        return fail(RAIA_EINVAL, "\"%s\" has %zu elements; %zu from %llu are too many", param->name,
                    param->count, count, (unsigned long long)first);
    switch (param->init) {
    case INIT_ZEROS:
        return device->ops->zero(device, out, count * raia_dtype_size(dtype));
    case INIT_ONES:
        return fill_ones(device, count, dtype, out);
    case INIT_NORMAL:
        break;
    }
    struct random_normal args = {
        .out = out,
        .count = count,
        .std = (float)std,
        .seed = seed,
        .tensor = str_hash(param->name, strlen(param->name)),
        .element0 = first,
        .dtype = dtype,
    };
    return device->ops->random_normal(device, &args);
}

/* ---- one part of a folder ---- */

struct part {
    const struct model_config *config;
    const struct tree *tree;
    const struct st_plan *plan;
    const char *dir;
    raia_dtype dtype;
    uint64_t seed;
    struct device *device;
    void *piece;
    struct init_watch *watch;
    int file, fd; /* open file; -1: none */
    char *path;
};

static raia_status close_file(struct part *part)
{
    raia_status status = RAIA_OK;
    if (part->fd >= 0 && (fsync(part->fd) < 0 || close(part->fd) < 0))
        status = fail(RAIA_EIO, "cannot finish %s: %s", part->path, strerror(errno));
    free(part->path);
    part->path = NULL;
    part->fd = part->file = -1;
    return status;
}

static raia_status use_file(struct part *part, int file)
{
    if (part->file == file)
        return RAIA_OK;
    RAIA_TRY(close_file(part));
    part->path = path_join(part->dir, st_plan_file_name(part->plan, file));
    if (part->path == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    part->fd = open(part->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (part->fd < 0)
        return fail(RAIA_EIO, "cannot create %s: %s", part->path, strerror(errno));
    part->file = file;
    return RAIA_OK;
}

static raia_status write_range(struct part *part, int index, uint64_t first, uint64_t end)
{
    const struct param *param = &part->tree->param[index];
    size_t size = raia_dtype_size(part->dtype);
    uint64_t offset;
    int file;
    st_plan_place(part->plan, index, &file, &offset);
    RAIA_TRY(use_file(part, file));
    while (first < end) {
        size_t n = end - first < PIECE ? (size_t)(end - first) : PIECE;
        if (part->watch != NULL && part->watch->stop)
            return fail(RAIA_ESTOPPED, "stopped while writing %s", part->path);
        RAIA_TRY(param_fill(part->device, param, part->config->init_std, part->seed, first, n,
                            part->dtype, part->piece));
        RAIA_TRY(file_pwrite(part->fd, part->piece, n * size, offset + first * size, part->path));
        if (part->watch != NULL)
            part->watch->written += n * size;
        first += n;
    }
    return RAIA_OK;
}

/* Elements [BEGIN, END) of all parameters laid end to end. */
static raia_status write_elements(struct part *part, uint64_t begin, uint64_t end)
{
    uint64_t start = 0;
    for (int p = 0; p < part->tree->params; p++) {
        uint64_t count = part->tree->param[p].count;
        uint64_t first = begin > start ? begin - start : 0;
        uint64_t last = end > start ? end - start : 0;
        if (last > count)
            last = count;
        if (first < last)
            RAIA_TRY(write_range(part, p, first, last));
        start += count;
    }
    return close_file(part);
}

/* Headers, index and config.json. */
static raia_status write_frame(struct part *part)
{
    struct model_config config = *part->config;
    config.dtype = part->dtype;
    RAIA_TRY(model_save_config(&config, part->dir));
    for (int f = 0; f < st_plan_files(part->plan); f++) {
        size_t len;
        const void *header = st_plan_header(part->plan, f, &len);
        RAIA_TRY(use_file(part, f));
        RAIA_TRY(file_pwrite(part->fd, header, len, 0, part->path));
    }
    RAIA_TRY(close_file(part));
    const char *index = st_plan_index(part->plan);
    if (index == NULL)
        return RAIA_OK;
    char *path = path_join(part->dir, "model.safetensors.index.json");
    if (path == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    raia_status status = file_write(path, index, strlen(index), 0644);
    free(path);
    return status;
}

static size_t piece_bytes(const struct part *part)
{
    return PIECE * raia_dtype_size(part->dtype);
}

static raia_status write_part(struct part *part, int index, int parts)
{
    uint64_t total = part->tree->total, share = total / (uint64_t)parts;
    uint64_t rest = total % (uint64_t)parts, i = (uint64_t)index;
    uint64_t begin = i * share + (i < rest ? i : rest);
    uint64_t end = begin + share + (i < rest ? 1 : 0);
    RAIA_TRY(device_open(&part->device, "cpu", 1));
    RAIA_TRY(part->device->ops->alloc(part->device, piece_bytes(part), &part->piece));
    if (index == 0)
        RAIA_TRY(write_frame(part));
    return write_elements(part, begin, end);
}

raia_status model_init_part(const struct model_config *config, const char *dir, raia_dtype dtype,
                            uint64_t seed, int part, int parts, struct init_watch *watch)
{
    struct tree tree = { 0 };
    struct st_plan *plan = NULL;
    struct part p = { .config = config,
                      .tree = &tree,
                      .dir = dir,
                      .dtype = dtype,
                      .seed = seed,
                      .watch = watch,
                      .file = -1,
                      .fd = -1 };
    if (parts < 1 || part < 0 || part >= parts)
        return fail(RAIA_EINVAL, "there is no part %d of %d", part, parts);
    if (config_dtype_name(dtype) == NULL)
        return fail(RAIA_EINVAL, "a model is not written as %s (f32, bf16 or f16)",
                    raia_dtype_name(dtype));
    raia_status status = tree_build(config, &tree);
    if (status == RAIA_OK)
        status = st_plan_new(&tree, dtype, 0, &plan);
    p.plan = plan;
    if (status == RAIA_OK)
        status = write_part(&p, part, parts);
    if (status != RAIA_OK && p.fd >= 0)
        close(p.fd);
    free(p.path);
    if (p.piece != NULL)
        p.device->ops->release(p.device, p.piece, piece_bytes(&p));
    if (p.device != NULL)
        device_close(p.device);
    st_plan_free(plan);
    tree_release(&tree);
    return status;
}
