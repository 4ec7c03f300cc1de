/* fuzz_package: any bytes as a working folder's zip. Nothing may appear outside the folder, nothing
 * in it may be a link or a device, and the limits hold. */
#include "cluster/package.h"

#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t files;
static uint64_t bytes;

static int look(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)path;
    (void)type;
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
        abort();
    if ((st->st_mode & (S_ISUID | S_ISGID | S_ISVTX)) != 0)
        abort();
    files += where->level > 0;
    bytes += S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
    return 0;
}

static int count_entries(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)path;
    (void)st;
    (void)type;
    files += where->level == 1;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char outer[] = "/dev/shm/raia-fuzz-XXXXXX", *inner;
    const struct package_limits limits = { .bytes = 1 << 20, .files = 64 };
    if (mkdtemp(outer) == NULL || (inner = path_join(outer, "inner")) == NULL)
        abort();
    if (dir_make(inner, 0700) != RAIA_OK)
        abort();
    if (package_unpack_memory(data, size, inner, &limits) == RAIA_OK) {
        files = bytes = 0;
        if (nftw(inner, look, 16, FTW_PHYS) != 0 || bytes > limits.bytes)
            abort();
    } else if (raia_error()[0] == '\0') {
        abort();
    }
    files = 0;
    if (nftw(outer, count_entries, 16, FTW_PHYS) != 0 || files != 1)
        abort();
    free(inner);
    if (dir_remove(outer) != RAIA_OK)
        abort();
    return 0;
}
