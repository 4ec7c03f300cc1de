/* The driver's side of raia_model_save: a folder made aside, filled by the ranks, renamed. */
#include "train/train_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

raia_status save_check(const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL && errno == ENOENT)
        return RAIA_OK;
    if (d == NULL)
        return fail(RAIA_EINVAL, "cannot save a model at %s: %s", dir, strerror(errno));
    bool empty = true;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    closedir(d);
    if (!empty)
        return fail(RAIA_EINVAL,
                    "cannot save a model at %s: the folder is not empty; name another or remove it",
                    dir);
    return RAIA_OK;
}

static void forget(struct save *s)
{
    free(s->dir);
    free(s->temp);
    memset(s, 0, sizeof *s);
}

void save_abandon(struct save *s)
{
    if (s->temp != NULL)
        dir_remove(s->temp);
    forget(s);
}

static raia_status take_names(struct save *s, const json_t *json)
{
    const char *dir, *temp, *nonce;
    RAIA_TRY(json_get_string(json, "save", "dir", &dir));
    RAIA_TRY(json_get_string(json, "save", "temp", &temp));
    RAIA_TRY(json_get_string(json, "save", "nonce", &nonce));
    if (!path_is_component(nonce) || strlen(nonce) >= sizeof s->nonce)
        return fail(RAIA_EFORMAT, "save: the nonce is malformed");
    snprintf(s->nonce, sizeof s->nonce, "%s", nonce);
    s->dir = strdup(dir);
    s->temp = strdup(temp);
    return s->dir != NULL && s->temp != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

static raia_status begin(struct save *s, const void *data, size_t len)
{
    json_t *json;
    if (s->temp != NULL)
        return fail(RAIA_EINVAL, "a model is being saved at %s already", s->dir);
    RAIA_TRY(json_parse(data, len, 1 << 16, "save", &json));
    raia_status status = take_names(s, json);
    json_decref(json);
    if (status == RAIA_OK)
        status = save_check(s->dir);
    if (status != RAIA_OK) {
        forget(s);
        return status;
    }
    char *marker = path_join(s->temp, s->nonce);
    if (marker == NULL)
        status = fail(RAIA_ENOMEM, "out of memory");
    if (status == RAIA_OK)
        status = dir_make(s->temp, 0777);
    if (status == RAIA_OK)
        status = file_write(marker, "", 0, 0600);
    free(marker);
    if (status != RAIA_OK)
        save_abandon(s);
    return status;
}

static raia_status write_part(struct save *s, const char *name, uint64_t offset, const void *data,
                              size_t len)
{
    if (s->temp == NULL || !path_is_component(name))
        return fail(RAIA_EINVAL, "a part of a file '%.100s' without a save under way", name);
    char *path = path_join(s->temp, name);
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    raia_status status = fd < 0 ? fail(RAIA_EIO, "cannot write %s: %s", path, strerror(errno))
                                : file_pwrite(fd, data, len, offset, path);
    if (fd >= 0)
        close(fd);
    free(path);
    return status;
}

static raia_status sync_files(const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return fail(RAIA_EIO, "cannot read %s: %s", dir, strerror(errno));
    raia_status status = RAIA_OK;
    for (struct dirent *e = readdir(d); e != NULL && status == RAIA_OK; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        int fd = openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || fsync(fd) < 0)
            status =
                fail(RAIA_EIO, "cannot make %s/%s lasting: %s", dir, e->d_name, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    closedir(d);
    return status;
}

static raia_status finish(struct save *s)
{
    if (s->temp == NULL)
        return fail(RAIA_EINVAL, "the end of a save that never began");
    char *marker = path_join(s->temp, s->nonce);
    if (marker != NULL)
        unlink(marker);
    free(marker);
    raia_status status = sync_files(s->temp);
    if (status == RAIA_OK && rename(s->temp, s->dir) < 0)
        status = fail(RAIA_EIO, "cannot rename %s to %s: %s", s->temp, s->dir, strerror(errno));
    if (status == RAIA_OK)
        status = dir_sync_of(s->dir);
    if (status != RAIA_OK)
        save_abandon(s);
    forget(s);
    return status;
}

raia_status save_chunk(struct save *s, const char *name, uint64_t offset, const void *data,
                       size_t len)
{
    if (strcmp(name, "save-begin") == 0)
        return begin(s, data, len);
    if (strcmp(name, "save-end") == 0)
        return finish(s);
    if (str_starts(name, "save/"))
        return write_part(s, name + strlen("save/"), offset, data, len);
    return fail(RAIA_EINVAL, "the driver takes no file '%.100s'", name);
}
