#include "model/st_priv.h"

#include <string.h>

raia_status st_read(const struct st_folder *folder, const struct st_tensor *tensor, uint64_t first,
                    size_t count, raia_dtype dtype, void *out)
{
    const struct st_file *file = &folder->file[tensor->file];
    bool converts = tensor->dtype != dtype;
    if (converts && !st_converts(tensor->dtype, dtype))
        return fail(RAIA_EUNSUPPORTED, "%s: tensor \"%s\" is %s, which is not read as %s",
                    file->path, tensor->name, tensor->tag, raia_dtype_name(dtype));
    size_t size = raia_dtype_size(tensor->dtype);
    uint64_t elements = tensor->bytes / size;
    if (first > elements || count > elements - first)
        return fail(RAIA_EINVAL, "%s: tensor \"%s\" has %llu elements; %zu from %llu are too many",
                    file->path, tensor->name, (unsigned long long)elements, count,
                    (unsigned long long)first);
    uint64_t offset = tensor->offset + first * size;
    if (!converts)
        return file_pread(file->fd, out, count * size, offset, file->path);
    /* in pieces: a bounded stack instead of a second copy of the tensor */
    _Alignas(64) char raw[32 << 10];
    size_t step = sizeof raw / size, wide = raia_dtype_size(dtype);
    for (size_t done = 0; done < count;) {
        size_t n = count - done < step ? count - done : step;
        RAIA_TRY(file_pread(file->fd, raw, n * size, offset + done * size, file->path));
        st_convert(raw, tensor->dtype, (char *)out + done * wide, dtype, n);
        done += n;
    }
    return RAIA_OK;
}

/* ---- a folder against a tree ---- */

static void shape_text(char *out, size_t size, const uint64_t *shape, int dims)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%llu", i > 0 ? ", " : "",
                                 (unsigned long long)shape[i]);
    if (used < size)
        snprintf(out + used, size - used, "]");
}

static raia_status check_tensor(const struct st_folder *folder, const struct st_tensor *tensor,
                                const struct param *param)
{
    const uint64_t want[2] = { param->rows, param->cols };
    int dims = param->cols > 0 ? 2 : 1;
    const char *path = folder->file[tensor->file].path;
    if (tensor->dims != dims || tensor->shape[0] != want[0] ||
        (dims == 2 && tensor->shape[1] != want[1])) {
        char got_text[200], want_text[64];
        shape_text(got_text, sizeof got_text, tensor->shape, tensor->dims);
        shape_text(want_text, sizeof want_text, want, dims);
        return fail(RAIA_EFORMAT,
                    "%s: tensor \"%s\" has the shape %s, but config.json makes it %s: they do "
                    "not belong together",
                    path, tensor->name, got_text, want_text);
    }
    if (!st_converts(tensor->dtype, RAIA_F32))
        return fail(RAIA_EUNSUPPORTED,
                    "%s: tensor \"%s\" is %s (supported: F32, BF16, F16): convert it with "
                    "transformers' save_pretrained",
                    path, tensor->name, tensor->tag);
    return RAIA_OK;
}

static raia_status missing(const struct st_folder *folder, const struct tree *tree,
                           const struct param *param)
{
    const char *where = folder->files > 0 ? folder->file[0].path : "the folder";
    const char *note = "";
    if (strcmp(param->name, "lm_head.weight") == 0)
        note = " (a model whose head is its embedding says \"tie_word_embeddings\": true)";
    else if (strcmp(param->name, tree->param[0].name) == 0 && folder->tensors > 0)
        note = " (are these weights of a causal language model, saved by transformers?)";
    return fail(RAIA_EFORMAT, "%s: tensor \"%s\" is missing%s", where, param->name, note);
}

/* A tied head that is in the file all the same must be the embedding, or else it was trained apart
 * and dropping it would change the model. Read side by side in pieces. */
static raia_status check_head_copy(const struct st_folder *folder, const struct st_tensor *head,
                                   const struct tree *tree)
{
    enum { STEP = 4096 };
    const struct param *embed = &tree->param[0];
    const struct st_tensor *table = st_find(folder, embed->name);
    RAIA_TRY(check_tensor(folder, head, embed));
    raia_dtype dtype = head->dtype == table->dtype ? head->dtype : RAIA_F32;
    float a[STEP], b[STEP];
    for (uint64_t done = 0; done < embed->count;) {
        size_t n = embed->count - done < STEP ? (size_t)(embed->count - done) : STEP;
        RAIA_TRY(st_read(folder, head, done, n, dtype, a));
        RAIA_TRY(st_read(folder, table, done, n, dtype, b));
        if (memcmp(a, b, n * raia_dtype_size(dtype)) != 0)
            return fail(RAIA_EFORMAT,
                        "%s: \"lm_head.weight\" differs from \"%s\", but config.json ties them: "
                        "set \"tie_word_embeddings\" to false to keep both",
                        folder->file[head->file].path, embed->name);
        done += n;
    }
    return RAIA_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* A name that no parameter has. */
static raia_status check_extra(const struct st_folder *folder, const struct st_tensor *tensor,
                               const struct tree *tree, bool tied)
{
    char shown[ST_NAME_SHOWN];
    if (ends_with(tensor->name, "rotary_emb.inv_freq"))
        return RAIA_OK; /* old exports hold it; it follows from the config */
    if (tied && strcmp(tensor->name, "lm_head.weight") == 0)
        return check_head_copy(folder, tensor, tree);
    return fail(RAIA_EUNSUPPORTED,
                "%s: tensor \"%s\" is not known to this model: raia would have to drop it",
                folder->file[tensor->file].path, st_show(shown, tensor->name));
}

raia_status st_check(const struct st_folder *folder, const struct tree *tree, bool tied)
{
    for (int p = 0; p < tree->params; p++) {
        const struct st_tensor *tensor = st_find(folder, tree->param[p].name);
        if (tensor == NULL)
            return missing(folder, tree, &tree->param[p]);
        RAIA_TRY(check_tensor(folder, tensor, &tree->param[p]));
    }
    for (int i = 0; i < folder->tensors; i++) {
        const struct st_tensor *tensor = &folder->tensor[i];
        if (tree_find_param(tree, tensor->name) < 0)
            RAIA_TRY(check_extra(folder, tensor, tree, tied));
    }
    return RAIA_OK;
}
