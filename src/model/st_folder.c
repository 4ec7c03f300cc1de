#include "model/st_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
enum { INDEX_MAX = ST_HEADER_MAX };

void st_close(struct st_folder *folder)
{
    if (folder == NULL)
        return;
    for (int i = 0; i < folder->tensors; i++)
        free(folder->tensor[i].name);
    for (int i = 0; i < folder->files; i++) {
        if (folder->file[i].fd >= 0)
            close(folder->file[i].fd);
        free(folder->file[i].path);
    }
    free(folder->tensor);
    free(folder->file);
    free(folder);
}

static raia_status open_failed(const char *path, int error)
{
    if (error == EMFILE || error == ENFILE)
        return fail(RAIA_EIO, "cannot open %s: too many open files: raise the limit (ulimit -n)",
                    path);
    return fail(error == ENOENT ? RAIA_ENOTFOUND : RAIA_EIO, "cannot open %s: %s", path,
                strerror(error));
}

/* Appends an open file; PATH becomes the folder's. */
static raia_status add_file(struct st_folder *folder, char *path)
{
    struct st_file *grown =
        realloc(folder->file, (size_t)(folder->files + 1) * sizeof *folder->file);
    if (grown == NULL) {
        free(path);
        return fail(RAIA_ENOMEM, "no memory to open a safetensors file");
    }
    folder->file = grown;
    struct st_file *file = &grown[folder->files++];
    struct stat st;
    /* not blocking: a FIFO must not hang a run */
    *file = (struct st_file){ .path = path, .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) };
    if (file->fd < 0)
        return open_failed(path, errno);
    if (fstat(file->fd, &st) < 0)
        return open_failed(path, errno);
    if (!S_ISREG(st.st_mode))
        return fail(RAIA_EINVAL, "%s is not a regular file", path);
    file->size = (uint64_t)st.st_size;
    return st_file_read_header(folder, folder->files - 1);
}

static raia_status add_file_in(struct st_folder *folder, const char *dir, const char *name)
{
    char *path = path_join(dir, name);
    if (path == NULL)
        return fail(RAIA_ENOMEM, "no memory for the path of %s", name);
    return add_file(folder, path);
}

/* ---- by name ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

static int name_to(const void *name, const void *tensor)
{
    return strcmp(name, ((const struct st_tensor *)tensor)->name);
}

static raia_status sort_names(struct st_folder *folder)
{
    if (folder->tensors < 2)
        return RAIA_OK;
    qsort(folder->tensor, (size_t)folder->tensors, sizeof *folder->tensor, by_name);
    for (int i = 1; i < folder->tensors; i++) {
        const struct st_tensor *a = &folder->tensor[i - 1], *b = &folder->tensor[i];
        if (strcmp(a->name, b->name) != 0)
            continue;
        char shown[ST_NAME_SHOWN];
        return fail(RAIA_EFORMAT,
                    "tensor \"%s\" is in %s and again in %s: remove the stale file or save "
                    "the model again",
                    st_show(shown, a->name), folder->file[a->file].path,
                    folder->file[b->file].path);
    }
    return RAIA_OK;
}

int st_count(const struct st_folder *folder)
{
    return folder->tensors;
}

const struct st_tensor *st_at(const struct st_folder *folder, int index)
{
    return &folder->tensor[index];
}

const struct st_tensor *st_find(const struct st_folder *folder, const char *name)
{
    if (folder->tensors == 0)
        return NULL;
    return bsearch(name, folder->tensor, (size_t)folder->tensors, sizeof *folder->tensor, name_to);
}

/* ---- folders with an index ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a > b && strcmp(text + a - b, end) == 0;
}

static raia_status check_file_name(const char *index, const char *tensor, const json_t *value)
{
    char shown[ST_NAME_SHOWN], file[ST_NAME_SHOWN];
    if (!json_is_string(value))
        return fail(RAIA_EFORMAT, "%s: weight_map: \"%s\" has no file's name", index,
                    st_show(shown, tensor));
    const char *name = json_string_value(value);
    if (!path_is_component(name) || !ends_with(name, ".safetensors"))
        return fail(RAIA_EFORMAT,
                    "%s: weight_map: \"%s\" lies in \"%s\", which is not the name of a "
                    ".safetensors file of this folder",
                    index, st_show(shown, tensor), st_show(file, name));
    return RAIA_OK;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* Each file that the map names once, opened. FILES remembers which those are. */
static raia_status open_mapped(struct st_folder *folder, const char *dir, const char *index,
                               const json_t *map, json_t *files)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value)
    {
        RAIA_TRY(check_file_name(index, name, value));
        const char *file = json_string_value(value);
        if (json_object_get(files, file) != NULL)
            continue;
        if (folder->files >= ST_FILES_MAX)
            return fail(RAIA_EUNSUPPORTED, "%s: names more than %d files", index, ST_FILES_MAX);
        if (json_object_set_new(files, file, json_true()) != 0)
            return fail(RAIA_ENOMEM, "%s: no memory for its list of files", index);
        raia_status status = add_file_in(folder, dir, file);
        if (status == RAIA_ENOTFOUND)
            return fail_in(status, "%s names a file that is missing (fetch the model again)",
                           index);
        RAIA_TRY(status);
    }
    return RAIA_OK;
}

/* The index tells the truth about what each file holds. */
static raia_status check_map(const struct st_folder *folder, const char *index, const json_t *map)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)map, name, value)
    {
        const struct st_tensor *tensor = st_find(folder, name);
        const char *file = json_string_value(value);
        if (tensor != NULL && strcmp(base_name(folder->file[tensor->file].path), file) == 0)
            continue;
        char shown[ST_NAME_SHOWN];
        return fail(RAIA_EFORMAT,
                    "%s: weight_map: tensor \"%s\" is not in %s: the index and the files do "
                    "not belong together; fetch or save the model again",
                    index, st_show(shown, name), file);
    }
    return RAIA_OK;
}

static raia_status open_index(struct st_folder *folder, const char *dir, const char *index,
                              const json_t *json)
{
    const json_t *map = json_object_get(json, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        return fail(RAIA_EFORMAT, "%s: \"weight_map\" is missing or empty", index);
    json_t *files = json_object();
    raia_status status = files != NULL ? open_mapped(folder, dir, index, map, files)
                                       : fail(RAIA_ENOMEM, "%s: no memory", index);
    json_decref(files);
    RAIA_TRY(status);
    RAIA_TRY(sort_names(folder));
    return check_map(folder, index, map);
}

static raia_status nothing_there(const char *dir)
{
    static const char *const others[] = { "pytorch_model.bin", "pytorch_model.bin.index.json",
                                          "consolidated.safetensors", "model.gguf" };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char *path = path_join(dir, others[i]);
        bool there = path != NULL && file_exists(path);
        free(path);
        if (there)
            return fail(RAIA_EUNSUPPORTED,
                        "%s has %s but no " SINGLE_NAME
                        ": convert it with transformers' save_pretrained",
                        dir, others[i]);
    }
    return fail(RAIA_ENOTFOUND, "%s has no weights: neither " SINGLE_NAME " nor " INDEX_NAME, dir);
}

/* transformers takes the single file first, too. */
static raia_status open_dir(struct st_folder *folder, const char *dir)
{
    char *single = path_join(dir, SINGLE_NAME), *index = path_join(dir, INDEX_NAME);
    raia_status status;
    json_t *json = NULL;
    if (single == NULL || index == NULL) {
        status = fail(RAIA_ENOMEM, "no memory for a path");
    } else if (file_exists(single)) {
        status = add_file_in(folder, dir, SINGLE_NAME);
        if (status == RAIA_OK)
            status = sort_names(folder);
    } else if (file_exists(index)) {
        status = json_read_file(index, INDEX_MAX, &json);
        if (status == RAIA_OK)
            status = open_index(folder, dir, index, json);
    } else {
        status = nothing_there(dir);
    }
    json_decref(json);
    free(single);
    free(index);
    return status;
}

static raia_status open_path(struct st_folder *folder, const char *path)
{
    if (dir_exists(path))
        return open_dir(folder, path);
    char *copy = strdup(path);
    if (copy == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    RAIA_TRY(add_file(folder, copy));
    return sort_names(folder);
}

raia_status st_open(const char *path, struct st_folder **out)
{
    struct st_folder *folder;
    RAIA_TRY(MEM_NEW(&folder, 1));
    raia_status status = open_path(folder, path);
    if (status != RAIA_OK) {
        st_close(folder);
        return status;
    }
    *out = folder;
    return RAIA_OK;
}
