#include "cluster/procs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STAT_BYTES = 1024, ENVIRON_MAX = 4 << 20 };

/* Text of /proc/PID/stat after the command's name, which may hold anything. NULL: no such process.
 */
static const char *read_stat(pid_t pid, char text[STAT_BYTES])
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t n = read(fd, text, STAT_BYTES - 1);
    close(fd);
    if (n <= 0)
        return NULL;
    text[n] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && end[1] == ' ' ? end + 2 : NULL;
}

static bool read_row(pid_t pid, struct procs_row *row)
{
    char text[STAT_BYTES], state;
    int parent, group, session;
    const char *rest = read_stat(pid, text);
    if (rest == NULL || sscanf(rest, "%c %d %d %d", &state, &parent, &group, &session) != 4)
        return false;
    *row = (struct procs_row){
        .pid = pid, .parent = parent, .session = session, .zombie = state == 'Z' || state == 'X'
    };
    return true;
}

raia_status procs_read(struct procs *procs)
{
    DIR *dir = opendir("/proc");
    if (dir == NULL)
        return fail(RAIA_EIO, "cannot read /proc: %s", strerror(errno));
    procs->count = 0;
    struct dirent *e;
    raia_status status = RAIA_OK;
    while (status == RAIA_OK && (e = readdir(dir)) != NULL) {
        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        if (procs->count == procs->cap) {
            size_t cap = procs->cap > 0 ? 2 * procs->cap : 256;
            struct procs_row *grown = reallocarray(procs->rows, cap, sizeof *grown);
            if (grown == NULL) {
                status = fail(RAIA_ENOMEM, "out of memory: %zu processes", cap);
                break;
            }
            procs->rows = grown;
            procs->cap = cap;
        }
        procs->count += read_row(atoi(e->d_name), &procs->rows[procs->count]);
    }
    closedir(dir);
    return status;
}

void procs_release(struct procs *procs)
{
    free(procs->rows);
    *procs = (struct procs){ 0 };
}

void procs_clear(struct procs *procs)
{
    for (size_t i = 0; i < procs->count; i++)
        procs->rows[i].chosen = false;
}

static struct procs_row *row_of(const struct procs *procs, pid_t pid)
{
    for (size_t i = 0; i < procs->count; i++)
        if (procs->rows[i].pid == pid)
            return &procs->rows[i];
    return NULL;
}

static bool descends(const struct procs *procs, const struct procs_row *row, pid_t root)
{
    for (size_t hops = 0; row != NULL && hops < procs->count; hops++) {
        if (row->parent == root)
            return true;
        row = row->parent > 1 ? row_of(procs, row->parent) : NULL;
    }
    return false;
}

void procs_choose_tree(struct procs *procs, pid_t root, bool include)
{
    for (size_t i = 0; i < procs->count; i++) {
        struct procs_row *row = &procs->rows[i];
        row->chosen |= (include && row->pid == root) || descends(procs, row, root);
    }
}

void procs_choose_session(struct procs *procs, pid_t session)
{
    for (size_t i = 0; i < procs->count; i++)
        procs->rows[i].chosen |= procs->rows[i].session == session;
}

static bool has_mark(pid_t pid, const char *mark)
{
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    struct buf text = { .max = ENVIRON_MAX };
    char chunk[16384];
    ssize_t n;
    while ((n = read(fd, chunk, sizeof chunk)) > 0)
        if (buf_append(&text, chunk, (size_t)n) != RAIA_OK)
            break;
    close(fd);
    bool found = false;
    for (size_t at = 0; at < text.len && !found; at += strlen(text.data + at) + 1)
        found = strcmp(text.data + at, mark) == 0;
    buf_release(&text);
    return found;
}

void procs_choose_marked(struct procs *procs, const char *mark, pid_t within)
{
    for (size_t i = 0; i < procs->count; i++) {
        struct procs_row *row = &procs->rows[i];
        if (!row->chosen && !row->zombie && (within == 0 || descends(procs, row, within)))
            row->chosen = has_mark(row->pid, mark);
    }
}

size_t procs_signal(const struct procs *procs, int signal)
{
    size_t count = 0;
    pid_t self = getpid();
    for (size_t i = 0; i < procs->count; i++) {
        const struct procs_row *row = &procs->rows[i];
        if (!row->chosen || row->zombie || row->pid == self)
            continue;
        count++;
        if (signal != 0)
            kill(row->pid, signal);
    }
    return count;
}

size_t procs_kill_marked(const char *mark, uint64_t deadline)
{
    struct procs procs = { 0 };
    size_t left = 0;
    for (unsigned pause = 1;; pause = pause < 50 ? 2 * pause : 50) {
        if (procs_read(&procs) != RAIA_OK)
            break;
        procs_choose_marked(&procs, mark, 0);
        left = procs_signal(&procs, SIGKILL);
        if (left == 0 || clock_ns() >= deadline)
            break;
        clock_sleep_ms(pause);
    }
    procs_release(&procs);
    return left;
}

uint64_t procs_start_time(pid_t pid)
{
    char text[STAT_BYTES];
    const char *at = read_stat(pid, text);
    /* Field 22 of proc(5); the state is field 3. */
    for (int field = 3; at != NULL && field < 22; field++) {
        at = strchr(at, ' ');
        at = at != NULL ? at + 1 : NULL;
    }
    return at != NULL ? strtoull(at, NULL, 10) : 0;
}

bool procs_wait_end(pid_t pid, uint64_t deadline)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (fd < 0)
        return errno == ESRCH;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int n;
    do
        n = poll(&p, 1, deadline_left_ms(deadline));
    while (n < 0 && errno == EINTR);
    close(fd);
    return n > 0;
}
