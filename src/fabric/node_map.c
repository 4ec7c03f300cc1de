/* Shared mappings: made by local rank 0, handed over, allocated by all. */
#include "fabric/node_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { HUGE_PAGE = 2 << 20 };
static const int seals = F_SEAL_SHRINK | F_SEAL_GROW;

size_t node_board_bytes(const struct node *node)
{
    size_t size = (size_t)node->size;
    return sizeof(struct node_board) + size * sizeof(struct node_member) +
           size * NODE_COUNTERS * sizeof(struct node_word);
}

raia_status node_memfd(size_t bytes, int *fd)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int got = memfd_create("raia", flags | MFD_NOEXEC_SEAL);
    if (got < 0 && errno == EINVAL) /* a kernel before 6.3 */
        got = memfd_create("raia", flags);
    if (got >= 0 && ftruncate(got, (off_t)bytes) == 0 && fcntl(got, F_ADD_SEALS, seals) == 0) {
        *fd = got;
        return RAIA_OK;
    }
    raia_status status = fail(errno == ENOMEM ? RAIA_ENOMEM : RAIA_EIO,
                              "cannot make shared memory of %zu bytes: %s", bytes, strerror(errno));
    if (got >= 0)
        close(got);
    return status;
}

raia_status node_map_fd(struct node *node, int fd, size_t bytes, void **out)
{
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0 || (size_t)info.st_size != bytes ||
        (fcntl(fd, F_GET_SEALS) & seals) != seals)
        return fail(RAIA_EFABRIC,
                    "node %d: rank %d was not given the shared memory of %zu bytes that it expects",
                    node->node, node->first + node->rank, bytes);
    struct node_mapping *mapping;
    RAIA_TRY(MEM_NEW(&mapping, 1));
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        free(mapping);
        return fail(RAIA_ENOMEM, "node %d: cannot map %zu bytes of shared memory: %s", node->node,
                    bytes, strerror(errno));
    }
    *mapping = (struct node_mapping){ node->mappings, base, bytes };
    node->mappings = mapping;
    *out = base;
    return RAIA_OK;
}

void node_unmap_all(struct node *node)
{
    while (node->mappings != NULL) {
        struct node_mapping *mapping = node->mappings;
        node->mappings = mapping->next;
        munmap(mapping->base, mapping->bytes);
        free(mapping);
    }
}

/* ---- is there memory at all: the kernel would rather kill a process than say ENOMEM ---- */

static bool read_number(const char *path, uint64_t *out)
{
    char *text;
    size_t len;
    if (file_read(path, 4096, &text, &len) != RAIA_OK)
        return false;
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    bool good = end != text && errno == 0; /* "max" is no number */
    free(text);
    return good;
}

static uint64_t memory_available(void)
{
    static const char *const limits[] = { "/sys/fs/cgroup/memory.max",
                                          "/sys/fs/cgroup/memory/memory.limit_in_bytes" };
    uint64_t available = UINT64_MAX, limit;
    FILE *info = fopen("/proc/meminfo", "re");
    char line[128];
    unsigned long long kib;
    while (info != NULL && fgets(line, sizeof line, info) != NULL)
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            available = kib << 10;
    if (info != NULL)
        fclose(info);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
        if (read_number(limits[i], &limit) && limit < available)
            available = limit;
    return available;
}

static raia_status check_memory(const struct node *node, size_t bytes, const char *what)
{
    uint64_t available = memory_available();
    if (bytes <= available)
        return RAIA_OK;
    char wanted[16], left[16];
    return fail(RAIA_ENOMEM, "node %d has %s of memory left, %s needs %s", node->node,
                str_bytes(left, available), what, str_bytes(wanted, bytes));
}

/* ---- allocation, each rank its part, so that pages lie near who is likely to use them and are
 * cleared in parallel ---- */

/* On a kernel whose shared memory takes huge pages only on advice, a part is populated through the
 * mapping; elsewhere fallocate finds out by itself. */
static void advise_huge(void *base, size_t bytes)
{
    char *mode;
    size_t len;
    if (bytes < HUGE_PAGE ||
        file_read("/sys/kernel/mm/transparent_hugepage/shmem_enabled", 256, &mode, &len) != RAIA_OK)
        return;
    if (strstr(mode, "[advise]") != NULL && madvise(base, bytes, MADV_HUGEPAGE) == 0)
        madvise(base, bytes, MADV_POPULATE_WRITE); /* what it does not do, fallocate does */
    free(mode);
}

static int allocate_part(const struct node *node, int fd, char *base, size_t bytes)
{
    size_t pages = (bytes + HUGE_PAGE - 1) / HUGE_PAGE;
    size_t begin = pages * (size_t)node->rank / (size_t)node->size * HUGE_PAGE;
    size_t end = pages * (size_t)(node->rank + 1) / (size_t)node->size * HUGE_PAGE;
    if (end > bytes)
        end = bytes;
    if (begin >= end)
        return 0;
    advise_huge(base + begin, end - begin);
    return posix_fallocate(fd, (off_t)begin, (off_t)(end - begin));
}

static raia_status allocate(struct node *node, int fd, char *base, size_t bytes, const char *what)
{
    node->board->members[node->rank].error = allocate_part(node, fd, base, bytes);
    RAIA_TRY(node_barrier(node));
    raia_status status = RAIA_OK;
    for (int who = 0; who < node->size && status == RAIA_OK; who++) {
        int error = node->board->members[who].error;
        if (error != 0)
            status = fail(RAIA_ENOMEM,
                          "node %d: rank %d cannot allocate its part of %zu bytes for %s: %s",
                          node->node, node->first + who, bytes, what, strerror(error));
    }
    raia_status after = node_barrier(node); /* all have looked: the errors may be overwritten */
    return status != RAIA_OK ? status : after;
}

/* ---- handing over ---- */

static raia_status offer(struct node *node, size_t bytes, const char *what, int *fd)
{
    struct node_message message = { .kind = NODE_SAYS_MAP, .value = bytes };
    raia_status status = check_memory(node, bytes, what);
    if (status == RAIA_OK)
        status = node_memfd(bytes, fd);
    message.status = (uint32_t)status;
    snprintf(message.text, sizeof message.text, "%s", status == RAIA_OK ? what : raia_error());
    for (int who = 1; who < node->size; who++) {
        raia_status sent = node_send(node->links[who], &message, *fd);
        if (sent != RAIA_OK)
            return fail_in(sent, "node %d: handing shared memory to rank %d", node->node,
                           node->first + who);
    }
    return status;
}

static raia_status receive(struct node *node, size_t bytes, const char *what, int *fd)
{
    struct node_message message;
    uint64_t deadline = node->timeout_ns > 0 ? clock_ns() + node->timeout_ns : 0;
    RAIA_TRY(
        node_receive(node, node->links[0], NODE_SAYS_MAP, node->first, deadline, &message, fd));
    if (message.status != RAIA_OK)
        return fail(message.status < RAIA_STATUS_COUNT ? (raia_status)message.status : RAIA_EFAIL,
                    "%s", message.text);
    if (message.value != bytes || strncmp(message.text, what, sizeof message.text - 1) != 0)
        return fail(RAIA_EBUG,
                    "node %d: rank %d maps %zu bytes for %s, rank %d maps %llu bytes for %s",
                    node->node, node->first + node->rank, bytes, what, node->first,
                    (unsigned long long)message.value, message.text);
    return RAIA_OK;
}

raia_status node_map(struct node *node, size_t bytes, const char *what, void **out)
{
    if (bytes == 0)
        return fail(RAIA_EINVAL, "a shared mapping of 0 bytes for %s", what);
    int fd = -1;
    raia_status status =
        node->rank == 0 ? offer(node, bytes, what, &fd) : receive(node, bytes, what, &fd);
    if (status == RAIA_OK)
        status = node_map_fd(node, fd, bytes, out);
    if (status == RAIA_OK)
        status = allocate(node, fd, *out, bytes, what);
    if (fd >= 0)
        close(fd);
    return status;
}
