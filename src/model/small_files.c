/* small_files: what makes a folder of weights usable again: tokenizer, templates, licence. */
#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SMALL_MAX = 256 << 20 };

/* Beginnings of the names that are copied. */
static const char *const wanted[] = {
    "tokenizer",
    "vocab.",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template",
    "generation_config.json",
    "LICENSE",
    "LICENCE",
    "NOTICE",
    "USE_POLICY",
};
/* Weights by any name stay behind. */
static const char *const unwanted[] = { ".safetensors", ".bin", ".pt",      ".pth",       ".gguf",
                                        ".onnx",        ".h5",  ".msgpack", ".index.json" };

static bool is_small_file(const char *name)
{
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof unwanted / sizeof unwanted[0]; i++) {
        size_t end = strlen(unwanted[i]);
        if (len >= end && strcmp(name + len - end, unwanted[i]) == 0)
            return false;
    }
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (str_starts(name, wanted[i]))
            return true;
    return false;
}

/* The folder that links may not lead out of: FROM, or the whole repository where FROM is a snapshot
 * of the hub's cache, whose files are links into its blobs. The caller frees it; NULL with errno.
 */
static char *link_root(const char *from)
{
    char *root = realpath(from, NULL);
    if (root == NULL)
        return NULL;
    char *commit = strrchr(root, '/');
    if (commit == NULL || commit == root)
        return root;
    *commit = '\0';
    char *snapshots = strrchr(root, '/');
    if (snapshots != NULL && snapshots != root && strcmp(snapshots, "/snapshots") == 0)
        *snapshots = '\0';
    else
        *commit = '/';
    return root;
}

static bool lies_below(const char *path, const char *root)
{
    size_t len = strlen(root);
    return strncmp(path, root, len) == 0 && (path[len] == '/' || strcmp(root, "/") == 0);
}

static raia_status copy_one(const char *source, const char *root, const char *target)
{
    struct stat st;
    char *real = realpath(source, NULL);
    if (real == NULL || stat(real, &st) < 0) {
        log_warn("%s is not copied: %s", source, strerror(errno));
        free(real);
        return RAIA_OK;
    }
    raia_status status = RAIA_OK;
    if (!lies_below(real, root))
        log_warn("%s is not copied: it is a link out of its folder, to %s", source, real);
    else if (S_ISREG(st.st_mode) && st.st_size > SMALL_MAX)
        log_warn("%s is not copied: %lld bytes is not a small file", source, (long long)st.st_size);
    else if (S_ISREG(st.st_mode))
        status = file_copy(real, target);
    free(real);
    return status;
}

static raia_status copy_named(const char *from, const char *root, const char *to, const char *name)
{
    char *source = path_join(from, name), *target = path_join(to, name);
    raia_status status = source != NULL && target != NULL
                             ? copy_one(source, root, target)
                             : fail(RAIA_ENOMEM, "no memory for a path");
    free(source);
    free(target);
    return status;
}

static bool same_folder(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

raia_status model_copy_small_files(const char *from, const char *to)
{
    if (same_folder(from, to))
        return RAIA_OK;
    char *root = link_root(from);
    DIR *dir = root != NULL ? opendir(from) : NULL;
    if (dir == NULL) {
        raia_status status = fail(errno == ENOENT ? RAIA_ENOTFOUND : RAIA_EIO,
                                  "cannot open the folder %s: %s", from, strerror(errno));
        free(root);
        return status;
    }
    raia_status status = RAIA_OK;
    const struct dirent *entry;
    while (status == RAIA_OK && (entry = readdir(dir)) != NULL)
        if (is_small_file(entry->d_name))
            status = copy_named(from, root, to, entry->d_name);
    closedir(dir);
    free(root);
    return status;
}
