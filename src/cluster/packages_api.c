/* Packages: stored under the name that the client chose, whole or not at all; removed when no job
 * that has not ended uses them and they were not asked for lately. */
#include "cluster/head_priv.h"
#include "cluster/package.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char *path_of(const struct head *head, const char *name)
{
    return path_join(head->packages, name);
}

bool package_is_here(const struct head *head, const char *name)
{
    char *path = package_name_ok(name) ? path_of(head, name) : NULL;
    bool here = path != NULL && file_exists(path);
    free(path);
    return here;
}

/* The name that the path gives; NULL after a reply. */
static const char *named(struct web_request *request)
{
    const char *protocol = web_arg(request, 0), *name = web_arg(request, 1);
    if (strcmp(protocol, "gcs") != 0)
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "Protocol %s is not supported", protocol);
    else if (!package_name_ok(name))
        web_text(request, MHD_HTTP_BAD_REQUEST,
                 "'%s' is no package name: letters, digits, '._+-', ending in .zip or .whl", name);
    else
        return name;
    return NULL;
}

/* ---- room ---- */

static bool is_used(const struct head *head, const char *name)
{
    struct job *job, *next;
    HASH_ITER(hh, ((struct head *)(uintptr_t)head)->jobs, job, next)
    {
        if (job_is_over(job))
            continue;
        char *env = json_dumps(json_object_get(job->request, "runtime_env"), JSON_COMPACT);
        bool used = env != NULL && strstr(env, name) != NULL;
        free(env);
        if (used)
            return true;
    }
    return false;
}

/* Removes the oldest packages that may go until SIZE more bytes fit. */
static raia_status make_room(const struct head *head, uint64_t size)
{
    for (;;) {
        uint64_t total = 0;
        char oldest[LIMIT_PACKAGE_NAME + 1] = "";
        time_t when = 0;
        DIR *dir = opendir(head->packages);
        const struct dirent *entry;
        if (dir == NULL)
            return fail(RAIA_EIO, "cannot read %s: %s", head->packages, strerror(errno));
        while ((entry = readdir(dir)) != NULL) {
            struct stat st;
            if (fstatat(dirfd(dir), entry->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode))
                continue;
            total += (uint64_t)st.st_size;
            bool idle = time(NULL) - st.st_mtime > LIMIT_PACKAGE_PIN_S;
            if (idle && (oldest[0] == '\0' || st.st_mtime < when) &&
                !is_used(head, entry->d_name)) {
                snprintf(oldest, sizeof oldest, "%.*s", LIMIT_PACKAGE_NAME, entry->d_name);
                when = st.st_mtime;
            }
        }
        closedir(dir);
        if (total + size <= LIMIT_PACKAGES)
            return RAIA_OK;
        if (oldest[0] == '\0')
            return fail(RAIA_EREFUSED, "the head's packages are full and all are in use");
        char *path = path_of(head, oldest);
        if (path == NULL || unlink(path) < 0)
            log_warn("cannot remove package %s", oldest);
        free(path);
    }
}

/* ---- upload ---- */

struct upload {
    char *path, *temp;
    int fd;
    uint64_t bytes;
    raia_status status;
    char text[256];
};

static void upload_gone(void *state)
{
    struct upload *up = state;
    if (up->fd >= 0)
        close(up->fd);
    if (up->temp != NULL)
        unlink(up->temp);
    free(up->temp);
    free(up->path);
    free(up);
}

static void upload_failed(struct upload *up, raia_status status)
{
    up->status = status;
    snprintf(up->text, sizeof up->text, "%.255s", raia_error());
}

bool api_package_begin(struct web_request *request)
{
    const struct head *head = web_self(request);
    static unsigned count;
    const char *name = named(request);
    if (name == NULL)
        return false;
    uint64_t size = web_content_length(request);
    raia_status status = make_room(head, size == UINT64_MAX ? LIMIT_PACKAGE : size);
    struct upload *up = NULL;
    if (status == RAIA_OK)
        status = MEM_NEW(&up, 1);
    if (status != RAIA_OK) {
        web_failure(request, status);
        return false;
    }
    up->fd = -1;
    web_set_state(request, up, upload_gone);
    up->path = path_of(head, name);
    up->temp = str_format("%s/.%u.part", head->packages, ++count);
    if (up->path != NULL && up->temp != NULL)
        up->fd = open(up->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (up->fd < 0)
        upload_failed(up, fail(RAIA_EIO, "cannot store the package: %s", strerror(errno)));
    return true;
}

bool api_package_chunk(struct web_request *request, const void *data, size_t len)
{
    struct upload *up = web_state(request);
    if (up->status != RAIA_OK)
        return false;
    if (up->bytes + len > LIMIT_PACKAGE) {
        upload_failed(up, fail(RAIA_EINVAL,
                               "the package is larger than %zu bytes; leave large "
                               "files out (excludes, .rayignore)",
                               LIMIT_PACKAGE));
        return false;
    }
    raia_status status = file_pwrite(up->fd, data, len, up->bytes, "package");
    if (status != RAIA_OK)
        upload_failed(up, status);
    up->bytes += len;
    return status == RAIA_OK;
}

void api_package_put(struct web_request *request)
{
    struct upload *up = web_state(request);
    if (up->status == RAIA_OK && rename(up->temp, up->path) < 0)
        upload_failed(up, fail(RAIA_EIO, "cannot store the package: %s", strerror(errno)));
    if (up->status != RAIA_OK)
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "%s", up->text);
    else
        web_reply(request, MHD_HTTP_OK, "text/plain", "", 0);
}

/* ---- download ---- */

void api_package_get(struct web_request *request)
{
    const struct head *head = web_self(request);
    const char *name = named(request);
    if (name == NULL)
        return;
    char *path = path_of(head, name);
    /* Contract: to ask for a package keeps it for a while. */
    if (path != NULL && utimensat(AT_FDCWD, path, NULL, 0) == 0)
        web_reply(request, MHD_HTTP_OK, "text/plain", "", 0);
    else
        web_text(request, MHD_HTTP_NOT_FOUND, "Package gcs://%s does not exist", name);
    free(path);
}

void api_package_fetch(struct web_request *request)
{
    const struct head *head = web_self(request);
    const char *name = web_arg(request, 0);
    char *path = package_name_ok(name) ? path_of(head, name) : NULL;
    int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat st;
    free(path);
    if (fd < 0 || fstat(fd, &st) < 0) {
        if (fd >= 0)
            close(fd);
        web_text(request, MHD_HTTP_NOT_FOUND, "Package gcs://%s does not exist", name);
        return;
    }
    struct MHD_Response *response = MHD_create_response_from_fd((uint64_t)st.st_size, fd);
    if (response == NULL) {
        close(fd);
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
        return;
    }
    web_response(request, MHD_HTTP_OK, "application/zip", response);
}
