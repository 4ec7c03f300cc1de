#include "cluster/package.h"

#include "cluster/limits.h"

#include <archive.h>
#include <archive_entry.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

bool package_name_ok(const char *name)
{
    size_t len = strlen(name);
    if (len > LIMIT_PACKAGE_NAME || name[0] == '.')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)name[i]) && strchr("._+-", name[i]) == NULL)
            return false;
    return ends_with(name, ".zip") || ends_with(name, ".whl");
}

raia_status package_name_of(const char *uri, const char **name)
{
    if (!str_starts(uri, "gcs://"))
        return fail(RAIA_EINVAL,
                    "working_dir '%.200s' is not a package: upload the folder and give its gcs:// "
                    "address (raia job submit --working-dir does that)",
                    uri);
    *name = uri + 6;
    if (!package_name_ok(*name))
        return fail(RAIA_EINVAL,
                    "'%.200s' is not a package name: it ends in .zip or .whl and has "
                    "letters, digits and ._+- only",
                    *name);
    return RAIA_OK;
}

struct package_locale package_locale_enter(void)
{
    struct package_locale locale = { .own = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0) };
    if (locale.own != NULL)
        locale.before = uselocale(locale.own);
    return locale;
}

void package_locale_leave(struct package_locale locale)
{
    if (locale.own == NULL)
        return;
    uselocale(locale.before);
    freelocale(locale.own);
}

struct unpack {
    struct archive *archive;
    int root;
    const struct package_limits *limits;
    const atomic_bool *cancel;
    uint64_t bytes;
    size_t files;
};

/* Next component of *PATH into OUT; RAIA_ENOTFOUND at the end. "." and doubled slashes are skipped.
 */
static raia_status next_component(const char **path, char out[256], const char *whole)
{
    for (;;) {
        const char *at = *path + strspn(*path, "/");
        size_t n = strcspn(at, "/");
        *path = at + n;
        if (n == 0)
            return RAIA_ENOTFOUND;
        if (n > 255 || (n == 2 && memcmp(at, "..", 2) == 0))
            return fail(RAIA_EFORMAT,
                        "package entry '%.200s' would leave the folder or has too "
                        "long a name",
                        whole);
        if (n == 1 && at[0] == '.')
            continue;
        memcpy(out, at, n);
        out[n] = '\0';
        return RAIA_OK;
    }
}

static int enter_folder(int at, const char *name)
{
    if (mkdirat(at, name, 0755) < 0 && errno != EEXIST)
        return -1;
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Makes the folders above PATH's last component. *FOLDER is a descriptor of the caller, LAST the
 * component ("" for the root itself). */
static raia_status walk(const struct unpack *u, const char *path, int *folder, char last[256])
{
    if (path[0] == '/' || strlen(path) > LIMIT_PACKAGE_PATH)
        return fail(RAIA_EFORMAT, "package entry '%.200s' is an absolute or too long path", path);
    char name[256];
    const char *rest = path;
    int at = fcntl(u->root, F_DUPFD_CLOEXEC, 0), depth = 0;
    last[0] = '\0';
    raia_status status;
    while ((status = next_component(&rest, name, path)) == RAIA_OK) {
        int next = at;
        if (last[0] != '\0') {
            next = ++depth > LIMIT_PACKAGE_DEPTH ? -1 : enter_folder(at, last);
            close(at);
        }
        if (next < 0)
            return fail(RAIA_EFORMAT, "package entry '%.200s': cannot enter '%s': %s", path, last,
                        depth > LIMIT_PACKAGE_DEPTH ? "nested too deep" : strerror(errno));
        at = next;
        memcpy(last, name, sizeof name);
    }
    if (status != RAIA_ENOTFOUND || at < 0) {
        if (at < 0)
            return fail(RAIA_EIO, "out of file descriptors");
        close(at);
        return status;
    }
    *folder = at;
    return RAIA_OK;
}

static raia_status write_all(int fd, const char *data, size_t len, const char *path)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR)
            return fail(RAIA_EIO, "package entry '%.200s': cannot write it: %s", path,
                        strerror(errno));
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
    }
    return RAIA_OK;
}

static raia_status copy_data(struct unpack *u, int fd, const char *path)
{
    char data[64 << 10];
    for (;;) {
        if (u->cancel != NULL && atomic_load(u->cancel))
            return fail(RAIA_ESTOPPED, "unpacking was stopped");
        la_ssize_t n = archive_read_data(u->archive, data, sizeof data);
        if (n == 0)
            return RAIA_OK;
        if (n < 0)
            return fail(RAIA_EFORMAT, "package entry '%.200s' is damaged: %s", path,
                        archive_error_string(u->archive));
        u->bytes += (uint64_t)n;
        if (u->bytes > u->limits->bytes) {
            char limit[16];
            return fail(RAIA_EFORMAT, "package entry '%.200s': the files together exceed %s", path,
                        str_bytes(limit, u->limits->bytes));
        }
        RAIA_TRY(write_all(fd, data, (size_t)n, path));
    }
}

static raia_status unpack_file(struct unpack *u, int folder, const char *name, const char *path,
                               mode_t mode)
{
    mode_t bits = (mode & 0777) == 0 ? 0644 : (mode & 0755) | 0600;
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, bits);
    if (fd < 0 && errno == EEXIST)
        return fail(RAIA_EFORMAT, "package entry '%.200s' is there twice", path);
    if (fd < 0)
        return fail(RAIA_EIO, "package entry '%.200s': cannot make it: %s", path, strerror(errno));
    raia_status status = copy_data(u, fd, path);
    close(fd);
    return status;
}

static raia_status unpack_entry(struct unpack *u, struct archive_entry *entry)
{
    const char *path = archive_entry_pathname(entry);
    if (path == NULL || path[0] == '\0')
        return fail(RAIA_EFORMAT, "package entry %zu has no readable name", u->files);
    if (++u->files > u->limits->files)
        return fail(RAIA_EFORMAT, "the package has more than %zu entries", u->limits->files);
    mode_t type = archive_entry_filetype(entry);
    if (type != AE_IFREG && type != AE_IFDIR)
        return fail(RAIA_EFORMAT,
                    "package entry '%.200s' is a link or device: only files and "
                    "folders are unpacked",
                    path);
    int folder = -1;
    char name[256];
    RAIA_TRY(walk(u, path, &folder, name));
    raia_status status = RAIA_OK;
    if (type == AE_IFREG && name[0] == '\0')
        status = fail(RAIA_EFORMAT, "package entry '%.200s' is a file without a name", path);
    else if (type == AE_IFREG)
        status = unpack_file(u, folder, name, path, archive_entry_perm(entry));
    else if (name[0] != '\0') {
        int made = enter_folder(folder, name);
        status = made < 0 ? fail(RAIA_EFORMAT, "package entry '%.200s': %s", path, strerror(errno))
                          : RAIA_OK;
        if (made >= 0)
            close(made);
    }
    close(folder);
    return status;
}

static raia_status unpack_all(struct unpack *u)
{
    for (;;) {
        struct archive_entry *entry;
        int code = archive_read_next_header(u->archive, &entry);
        if (code == ARCHIVE_EOF)
            return RAIA_OK;
        if (code != ARCHIVE_OK)
            return fail(RAIA_EFORMAT, "the package is damaged after %zu entries: %s", u->files,
                        archive_error_string(u->archive));
        RAIA_TRY(unpack_entry(u, entry));
    }
}

static raia_status unpack(struct unpack *u, const char *zip, const void *data, size_t len,
                          const char *dir)
{
    u->archive = archive_read_new();
    if (u->archive == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a zip reader");
    struct package_locale locale = package_locale_enter();
    u->root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    raia_status status = RAIA_OK;
    archive_read_support_format_zip_seekable(u->archive);
    if (u->root < 0)
        status = fail(RAIA_EIO, "cannot open folder %s: %s", dir, strerror(errno));
    else if ((zip != NULL ? archive_read_open_filename(u->archive, zip, 64 << 10)
                          : archive_read_open_memory(u->archive, data, len)) != ARCHIVE_OK)
        status =
            fail(RAIA_EFORMAT, "the package is no zip file: %s", archive_error_string(u->archive));
    else
        status = unpack_all(u);
    if (u->root >= 0)
        close(u->root);
    archive_read_free(u->archive);
    package_locale_leave(locale);
    return status;
}

raia_status package_unpack(const char *zip, const char *dir, const struct package_limits *limits,
                           const atomic_bool *cancel)
{
    struct unpack u = { .limits = limits, .cancel = cancel };
    return unpack(&u, zip, NULL, 0, dir);
}

raia_status package_unpack_memory(const void *data, size_t len, const char *dir,
                                  const struct package_limits *limits)
{
    struct unpack u = { .limits = limits };
    return unpack(&u, NULL, data, len, dir);
}
