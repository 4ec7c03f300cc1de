#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static raia_status failed(const char *verb, const char *path)
{
    raia_status status = errno == ENOENT ? RAIA_ENOTFOUND : RAIA_EIO;
    return fail(status, "cannot %s %s: %s", verb, path, strerror(errno));
}

raia_status file_pread(int fd, void *data, size_t len, uint64_t offset, const char *path)
{
    char *p = data;
    while (len > 0) {
        ssize_t got = pread(fd, p, len, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return failed("read", path);
        if (got == 0)
            return fail(RAIA_EFORMAT, "%s ends at byte %llu, %zu bytes too early", path,
                        (unsigned long long)offset, len);
        p += got;
        offset += (uint64_t)got;
        len -= (size_t)got;
    }
    return RAIA_OK;
}

raia_status file_pwrite(int fd, const void *data, size_t len, uint64_t offset, const char *path)
{
    const char *p = data;
    while (len > 0) {
        ssize_t put = pwrite(fd, p, len, (off_t)offset);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return failed("write", path);
        p += put;
        offset += (uint64_t)put;
        len -= (size_t)put;
    }
    return RAIA_OK;
}

/* One more read at the end of BUF; *ENDED when there was nothing left. */
static raia_status read_more(int fd, const char *path, struct buf *buf, bool *ended)
{
    char block[16384];
    ssize_t got = read(fd, block, sizeof block);
    *ended = got == 0;
    if (got < 0 && errno == EINTR)
        return RAIA_OK;
    if (got < 0)
        return failed("read", path);
    if ((size_t)got > buf->max - buf->len)
        return fail(RAIA_EFORMAT, "%s has more than the %zu bytes that are allowed", path,
                    buf->max);
    return buf_append(buf, block, (size_t)got);
}

/* Up to the end rather than up to the size, which the kernel's own files (/proc, /sys) do not know.
 */
static raia_status read_all(int fd, const char *path, size_t max, char **out, size_t *len)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return failed("read", path);
    if (!S_ISREG(st.st_mode))
        return fail(RAIA_EINVAL, "%s is not a regular file", path);
    struct buf buf = { .max = max };
    bool ended = false;
    raia_status status = buf_append(&buf, "", 0); /* an empty file is a string too */
    while (status == RAIA_OK && !ended)
        status = read_more(fd, path, &buf, &ended);
    if (status != RAIA_OK) {
        buf_release(&buf);
        return status;
    }
    *out = buf.data;
    if (len != NULL)
        *len = buf.len;
    return RAIA_OK;
}

raia_status file_read(const char *path, size_t max, char **out, size_t *len)
{
    /* Nonblocking: opening a FIFO must not wait for its writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return failed("open", path);
    raia_status status = read_all(fd, path, max, out, len);
    close(fd);
    return status;
}

raia_status dir_sync_of(const char *path)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    char *slash = strrchr(copy, '/');
    const char *folder = slash == NULL ? "." : slash == copy ? "/" : copy;
    if (slash != NULL && slash != copy)
        *slash = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    raia_status status = fd < 0 || fsync(fd) < 0 ? failed("sync the folder of", path) : RAIA_OK;
    if (fd >= 0)
        close(fd);
    free(copy);
    return status;
}

static raia_status write_aside(const char *aside, const void *data, size_t len, unsigned mode)
{
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return failed("create", aside);
    raia_status status = file_pwrite(fd, data, len, 0, aside);
    if (status == RAIA_OK && fsync(fd) < 0)
        status = failed("sync", aside);
    if (close(fd) < 0 && status == RAIA_OK)
        status = failed("close", aside);
    return status;
}

raia_status file_write(const char *path, const void *data, size_t len, unsigned mode)
{
    char random[17];
    RAIA_TRY(str_random_hex(random, 8));
    char *aside = str_format("%s.%s.tmp", path, random);
    if (aside == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = write_aside(aside, data, len, mode);
    if (status == RAIA_OK && rename(aside, path) < 0)
        status = failed("rename the new", path);
    if (status != RAIA_OK)
        unlink(aside);
    free(aside);
    return status == RAIA_OK ? dir_sync_of(path) : status;
}

static raia_status copy_bytes(int in, int out, const char *from, const char *to)
{
    char block[1 << 16];
    for (uint64_t at = 0;;) {
        ssize_t got = read(in, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return failed("read", from);
        if (got == 0)
            return RAIA_OK;
        RAIA_TRY(file_pwrite(out, block, (size_t)got, at, to));
        at += (uint64_t)got;
    }
}

raia_status file_copy(const char *from, const char *to)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        return failed("open", from);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    raia_status status = out < 0 ? failed("create", to) : copy_bytes(in, out, from, to);
    close(in);
    if (out >= 0 && close(out) < 0 && status == RAIA_OK)
        status = failed("close", to);
    return status;
}

raia_status dir_make(const char *path, unsigned mode)
{
    if (path[0] == '\0')
        return fail(RAIA_EINVAL, "a folder needs a name, this one is empty");
    char *copy = strdup(path);
    if (copy == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = RAIA_OK;
    for (char *p = copy + 1; status == RAIA_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char end = *p;
        *p = '\0';
        if (mkdir(copy, mode) < 0 && errno != EEXIST)
            status = failed("make the folder", copy);
        *p = end;
        if (end == '\0')
            break;
    }
    free(copy);
    if (status == RAIA_OK && !dir_exists(path))
        return fail(RAIA_EIO, "%s exists and is not a folder", path);
    return status;
}

/* Removes what FD holds; FD is closed. */
static raia_status remove_entries(int fd, const char *path, int depth)
{
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        close(fd);
        return failed("read the folder", path);
    }
    raia_status status = RAIA_OK;
    for (struct dirent *e; status == RAIA_OK && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        int child = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (child < 0 || depth > 200) {
            status = failed("remove what is in", path);
            if (child >= 0)
                close(child);
            break;
        }
        status = remove_entries(child, path, depth + 1);
        if (status == RAIA_OK && unlinkat(fd, e->d_name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            status = failed("remove a folder in", path);
    }
    closedir(dir);
    return status;
}

raia_status dir_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? RAIA_OK : failed("open the folder", path);
    RAIA_TRY(remove_entries(fd, path, 0));
    return rmdir(path) < 0 && errno != ENOENT ? failed("remove", path) : RAIA_OK;
}

raia_status dir_make_temp(const char *prefix, char **out)
{
    char *path = str_format("%s/%s-XXXXXX", env_get("TMPDIR", "/tmp"), prefix);
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    if (mkdtemp(path) == NULL) {
        raia_status status = failed("make the folder", path);
        free(path);
        return status;
    }
    *out = path;
    return RAIA_OK;
}

bool file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *path_join(const char *a, const char *b)
{
    size_t len = strlen(a);
    while (len > 1 && a[len - 1] == '/')
        len--;
    while (*b == '/')
        b++;
    return str_format("%.*s%s%s", (int)len, a, len == 1 && a[0] == '/' ? "" : "/", b);
}

bool path_is_component(const char *name)
{
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return false;
    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++)
        if (*p == '/' || *p < 0x20 || *p == 0x7f)
            return false;
    return strlen(name) <= 255;
}
