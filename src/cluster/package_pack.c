/* Packing a folder: which files, what hash, the zip. */
#include "cluster/codec.h"
#include "cluster/ignore.h"
#include "cluster/limits.h"
#include "cluster/package.h"

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha1.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 128 << 10 };

struct scan {
    struct package_plan *plan;
    struct ignore ignore;
    char *chunk;
    int depth;
};

static raia_status add_entry(struct package_plan *plan, const char *path, const struct stat *st)
{
    if (plan->count >= LIMIT_PACKAGE_FILES)
        return fail(RAIA_EINVAL,
                    "%s: more than %d files and folders; leave some out with a "
                    ".rayignore file",
                    plan->root, LIMIT_PACKAGE_FILES);
    if (plan->count == plan->cap) {
        size_t cap = plan->cap > 0 ? 2 * plan->cap : 64;
        struct package_entry *grown = reallocarray(plan->entries, cap, sizeof *grown);
        if (grown == NULL)
            return fail(RAIA_ENOMEM, "out of memory: %zu package entries", cap);
        plan->entries = grown;
        plan->cap = cap;
    }
    bool folder = S_ISDIR(st->st_mode);
    struct package_entry entry = { .path = str_format("%s", path),
                                   .folder = folder,
                                   .mode = st->st_mode & 0777,
                                   .size = folder ? 0 : (uint64_t)st->st_size };
    if (entry.path == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a package entry");
    plan->entries[plan->count++] = entry;
    plan->bytes += entry.size;
    return RAIA_OK;
}

/* Contract: each entry's SHA-1 over its name and bytes, folded by XOR into eight '0' characters. */
static raia_status hash_entry(struct scan *scan, const char *path, const char *full, bool folder)
{
    struct sha1_ctx hash;
    sha1_init(&hash);
    sha1_update(&hash, strlen(path), (const uint8_t *)path);
    int fd = folder ? -1 : open(full, O_RDONLY | O_CLOEXEC);
    if (!folder && fd < 0)
        return fail(RAIA_EIO, "cannot read %s: %s", full, strerror(errno));
    ssize_t n = 0;
    while (fd >= 0 && (n = read(fd, scan->chunk, CHUNK)) > 0)
        sha1_update(&hash, (size_t)n, (const uint8_t *)scan->chunk);
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return fail(RAIA_EIO, "cannot read %s: %s", full, strerror(errno));
    uint8_t digest[sizeof scan->plan->hash];
    sha1_digest(&hash, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++)
        scan->plan->hash[i] ^= digest[i];
    return RAIA_OK;
}

static raia_status scan_folder(struct scan *scan, const char *path, const char *full);

static raia_status scan_one(struct scan *scan, const char *path, const char *full)
{
    struct stat st;
    if (stat(full, &st) < 0) /* a dangling link: nothing to pack */
        return RAIA_OK;
    bool folder = S_ISDIR(st.st_mode);
    if ((!folder && !S_ISREG(st.st_mode)) || ignore_matches(&scan->ignore, path, folder))
        return RAIA_OK;
    RAIA_TRY(add_entry(scan->plan, path, &st));
    RAIA_TRY(hash_entry(scan, path, full, folder));
    return folder ? scan_folder(scan, path, full) : RAIA_OK;
}

static raia_status add_ignore_files(struct scan *scan, const char *base, const char *full)
{
    static const char *const names[] = { ".gitignore", ".rayignore" };
    for (size_t i = 0; i < 2; i++) {
        if (i == 0 && env_flag("RAY_RUNTIME_ENV_IGNORE_GITIGNORE", false))
            continue;
        char *file = path_join(full, names[i]);
        raia_status status = file == NULL ? fail(RAIA_ENOMEM, "out of memory: a path")
                                          : ignore_add_file(&scan->ignore, base, file);
        free(file);
        RAIA_TRY(status);
    }
    return RAIA_OK;
}

static raia_status scan_children(struct scan *scan, DIR *dir, const char *base, const char *full)
{
    struct dirent *e;
    raia_status status = RAIA_OK;
    while (status == RAIA_OK && (e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *path = str_format("%s%s", base, e->d_name);
        char *below = path_join(full, e->d_name);
        status = path == NULL || below == NULL ? fail(RAIA_ENOMEM, "out of memory: a path")
                                               : scan_one(scan, path, below);
        free(path);
        free(below);
    }
    return status;
}

static raia_status scan_folder(struct scan *scan, const char *path, const char *full)
{
    if (++scan->depth > LIMIT_PACKAGE_DEPTH)
        return fail(RAIA_EINVAL, "%s: nested deeper than %d folders (a link to a folder above?)",
                    full, LIMIT_PACKAGE_DEPTH);
    DIR *dir = opendir(full);
    if (dir == NULL)
        return fail(RAIA_EIO, "cannot read folder %s: %s", full, strerror(errno));
    char *base = strcmp(path, ".") == 0 ? str_format("%s", "") : str_format("%s/", path);
    size_t rules = scan->ignore.count;
    raia_status status = base == NULL ? fail(RAIA_ENOMEM, "out of memory: a path")
                                      : add_ignore_files(scan, base, full);
    if (status == RAIA_OK)
        status = scan_children(scan, dir, base, full);
    ignore_truncate(&scan->ignore, rules);
    free(base);
    closedir(dir);
    scan->depth--;
    return status;
}

static raia_status add_defaults(struct ignore *ignore)
{
    const char *list = getenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES");
    char *copy = str_format("%s", list != NULL ? list : ".git,.venv,venv,__pycache__");
    if (copy == NULL)
        return fail(RAIA_ENOMEM, "out of memory: the default excludes");
    char *save = NULL;
    raia_status status = RAIA_OK;
    for (char *word = strtok_r(copy, ",", &save); word != NULL && status == RAIA_OK;
         word = strtok_r(NULL, ",", &save))
        status = ignore_add(ignore, "", word);
    free(copy);
    return status;
}

static int by_size(const void *a, const void *b)
{
    const struct package_entry *x = *(const struct package_entry *const *)a;
    const struct package_entry *y = *(const struct package_entry *const *)b;
    return x->size < y->size ? 1 : x->size > y->size ? -1 : 0;
}

static raia_status check_size(const struct package_plan *plan)
{
    if (plan->bytes < LIMIT_PACKAGE)
        return RAIA_OK;
    const struct package_entry **sorted;
    RAIA_TRY(MEM_NEW(&sorted, plan->count));
    for (size_t i = 0; i < plan->count; i++)
        sorted[i] = &plan->entries[i];
    qsort(sorted, plan->count, sizeof *sorted, by_size);
    struct buf text = { 0 };
    char size[16];
    raia_status status = RAIA_OK;
    for (size_t i = 0; i < plan->count && i < 5 && status == RAIA_OK; i++)
        status = buf_printf(&text, "%s %s (%s)", i > 0 ? "," : "", sorted[i]->path,
                            str_bytes(size, sorted[i]->size));
    char total[16], limit[16];
    status = fail(RAIA_EINVAL,
                  "working directory %s has %s, the limit is %s; largest files:%s. Leave them out "
                  "with a .rayignore file, or keep data in shared storage",
                  plan->root, str_bytes(total, plan->bytes), str_bytes(limit, LIMIT_PACKAGE),
                  text.data != NULL ? text.data : "");
    buf_release(&text);
    free(sorted);
    return status;
}

static raia_status scan_all(struct scan *scan, const char *const *excludes, size_t nexcludes)
{
    RAIA_TRY(add_defaults(&scan->ignore));
    for (size_t i = 0; i < nexcludes; i++)
        RAIA_TRY(ignore_add(&scan->ignore, "", excludes[i]));
    RAIA_TRY(hash_entry(scan, ".", scan->plan->root, true));
    RAIA_TRY(scan_folder(scan, ".", scan->plan->root));
    return check_size(scan->plan);
}

raia_status package_scan(struct package_plan *plan, const char *dir, const char *const *excludes,
                         size_t nexcludes)
{
    *plan = (struct package_plan){ .root = str_format("%s", dir) };
    struct scan scan = { .plan = plan, .chunk = malloc(CHUNK) };
    memset(plan->hash, '0', sizeof plan->hash);
    raia_status status = RAIA_OK;
    if (plan->root == NULL || scan.chunk == NULL)
        status = fail(RAIA_ENOMEM, "out of memory: a package");
    else if (!dir_exists(dir))
        status = fail(RAIA_ENOTFOUND, "working directory %s is not a folder", dir);
    else
        status = scan_all(&scan, excludes, nexcludes);
    ignore_truncate(&scan.ignore, 0);
    free(scan.chunk);
    if (status != RAIA_OK)
        package_plan_release(plan);
    return status;
}

void package_plan_release(struct package_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++)
        free(plan->entries[i].path);
    free(plan->entries);
    free(plan->root);
    *plan = (struct package_plan){ 0 };
}

void package_plan_name(const struct package_plan *plan, char out[PACKAGE_NAME])
{
    char hex[2 * sizeof plan->hash + 1];
    hex_encode(plan->hash, sizeof plan->hash, hex);
    snprintf(out, PACKAGE_NAME, "_ray_pkg_%s.zip", hex);
}

/* ---- the zip ---- */

static raia_status write_data(struct archive *zip, const struct package_entry *entry, int fd,
                              char *chunk)
{
    uint64_t left = entry->size;
    while (left > 0) {
        ssize_t n = read(fd, chunk, left < CHUNK ? (size_t)left : CHUNK);
        if (n <= 0)
            return fail(RAIA_EIO, "%s became shorter while it was packed; try again", entry->path);
        if (archive_write_data(zip, chunk, (size_t)n) != n)
            return fail(RAIA_EIO, "cannot write the package: %s", archive_error_string(zip));
        left -= (uint64_t)n;
    }
    return RAIA_OK;
}

static raia_status write_entry(const struct package_plan *plan, struct archive *zip,
                               struct archive_entry *header, const struct package_entry *entry,
                               char *chunk)
{
    char *full = path_join(plan->root, entry->path);
    int fd = full == NULL || entry->folder ? -1 : open(full, O_RDONLY | O_CLOEXEC);
    raia_status status = RAIA_OK;
    if (!entry->folder && fd < 0)
        status = fail(RAIA_EIO, "cannot read %s: %s", entry->path, strerror(errno));
    archive_entry_clear(header);
    archive_entry_set_pathname(header, entry->path);
    archive_entry_set_filetype(header, entry->folder ? AE_IFDIR : AE_IFREG);
    archive_entry_set_perm(header, entry->mode);
    archive_entry_set_size(header, (la_int64_t)entry->size);
    if (status == RAIA_OK && archive_write_header(zip, header) != ARCHIVE_OK)
        status = fail(RAIA_EIO, "cannot write the package entry %s: %s", entry->path,
                      archive_error_string(zip));
    if (status == RAIA_OK && !entry->folder)
        status = write_data(zip, entry, fd, chunk);
    if (fd >= 0)
        close(fd);
    free(full);
    return status;
}

static raia_status write_entries(const struct package_plan *plan, struct archive *zip,
                                 const char *path)
{
    struct archive_entry *header = archive_entry_new();
    char *chunk = malloc(CHUNK);
    raia_status status = RAIA_OK;
    archive_write_set_format_zip(zip);
    archive_write_set_options(zip, "zip:compression=store");
    if (header == NULL || chunk == NULL)
        status = fail(RAIA_ENOMEM, "out of memory: a zip writer");
    else if (archive_write_open_filename(zip, path) != ARCHIVE_OK)
        status = fail(RAIA_EIO, "cannot write %s: %s", path, archive_error_string(zip));
    for (size_t i = 0; i < plan->count && status == RAIA_OK; i++)
        status = write_entry(plan, zip, header, &plan->entries[i], chunk);
    if (status == RAIA_OK && archive_write_close(zip) != ARCHIVE_OK)
        status = fail(RAIA_EIO, "cannot write %s: %s", path, archive_error_string(zip));
    free(chunk);
    archive_entry_free(header);
    return status;
}

raia_status package_write(const struct package_plan *plan, const char *path)
{
    struct archive *zip = archive_write_new();
    if (zip == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a zip writer");
    struct package_locale locale = package_locale_enter();
    raia_status status = write_entries(plan, zip, path);
    archive_write_free(zip);
    package_locale_leave(locale);
    return status;
}
