/* The daemons of this machine: started in the background, found again by their files, ended. */
#include "cluster/cluster.h"
#include "cluster/limits.h"
#include "cluster/procs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READY_MS = 20000, TERM_MS = 8000, MARKED_MS = 5000, ANSWER = 2048 };

/* ---- their files ---- */

static char *file_of(const char *state, const char *name, const char *suffix)
{
    return str_format("%s/%s%s", state, name, suffix);
}

raia_status daemon_enter(const char *state, const char *name, const char *address)
{
    char *path = file_of(state, name, ".json");
    json_t *row = json_pack("{s:s, s:i, s:I, s:s}", "name", name, "pid", (int)getpid(), "born",
                            (json_int_t)procs_start_time(getpid()), "address", address);
    char *text = row != NULL ? json_dumps(row, JSON_INDENT(2)) : NULL;
    raia_status status = path == NULL || text == NULL
                             ? fail(RAIA_ENOMEM, "out of memory: a daemon's file")
                             : file_write(path, text, strlen(text), 0600);
    /* The mark by which `raia down` finds whatever this daemon has started. */
    if (status == RAIA_OK && setenv("RAIA_CLUSTER", state, 1) < 0)
        status = fail(RAIA_ENOMEM, "out of memory: the environment");
    json_decref(row);
    free(text);
    free(path);
    return status;
}

void daemon_leave(const char *state, const char *name)
{
    char *path = file_of(state, name, ".json");
    if (path != NULL)
        unlink(path);
    free(path);
}

static bool read_row(const char *path, struct daemon *out)
{
    json_t *row;
    const char *name, *address;
    int64_t pid, born;
    if (json_read_file(path, 64 << 10, &row) != RAIA_OK)
        return false;
    bool good = json_get_string(row, path, "name", &name) == RAIA_OK &&
                json_get_string(row, path, "address", &address) == RAIA_OK &&
                json_get_i64(row, path, "pid", 1, INT32_MAX, &pid) == RAIA_OK &&
                json_get_i64(row, path, "born", 0, INT64_MAX, &born) == RAIA_OK;
    if (good) {
        *out = (struct daemon){ .pid = (int)pid, .born = (uint64_t)born };
        snprintf(out->name, sizeof out->name, "%.79s", name);
        snprintf(out->address, sizeof out->address, "%.299s", address);
        good = procs_start_time(out->pid) == out->born;
    }
    json_decref(row);
    return good;
}

static bool is_row(const char *name)
{
    size_t len = strlen(name);
    return len > 5 && strcmp(name + len - 5, ".json") == 0 &&
           (str_starts(name, "head.") || str_starts(name, "agent-"));
}

static int by_name(const void *a, const void *b)
{
    const struct daemon *x = a, *y = b;
    /* "head" first: it is the one that people ask about. */
    return (strcmp(y->name, "head") == 0) - (strcmp(x->name, "head") == 0) != 0
               ? (strcmp(y->name, "head") == 0) - (strcmp(x->name, "head") == 0)
               : strverscmp(x->name, y->name);
}

raia_status daemons_read(const char *state, struct daemons *out)
{
    DIR *dir = opendir(state);
    const struct dirent *entry;
    size_t cap = 0;
    raia_status status = RAIA_OK;
    *out = (struct daemons){ 0 };
    if (dir == NULL)
        return errno == ENOENT ? RAIA_OK : fail(RAIA_EIO, "%s: %s", state, strerror(errno));
    while (status == RAIA_OK && (entry = readdir(dir)) != NULL) {
        if (!is_row(entry->d_name))
            continue;
        if (out->count == cap) {
            cap = cap * 2 + 16;
            struct daemon *rows = realloc(out->rows, cap * sizeof *rows);
            if (rows == NULL) {
                status = fail(RAIA_ENOMEM, "out of memory: the daemons");
                break;
            }
            out->rows = rows;
        }
        char *path = path_join(state, entry->d_name);
        if (path != NULL && read_row(path, &out->rows[out->count]))
            out->count++;
        else if (path != NULL)
            unlink(path);
        free(path);
    }
    closedir(dir);
    if (out->count > 1)
        qsort(out->rows, out->count, sizeof *out->rows, by_name);
    fail_clear();
    return status;
}

/* ---- start ---- */

void daemon_ready(int fd, const char *format, ...)
{
    char text[ANSWER];
    va_list args;
    if (fd < 0)
        return;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text - 1, format, args);
    va_end(args);
    if (len < 0)
        len = 0;
    if ((size_t)len > sizeof text - 2)
        len = sizeof text - 2;
    text[len] = '\n';
    if (write(fd, text, (size_t)len + 1) < 0)
        log_warn("nobody waits for this daemon to be ready");
    close(fd);
}

int daemon_ready_fd(void)
{
    int64_t fd = -1;
    if (env_i64("RAIA_READY_FD", -1, 3, 1 << 20, &fd) != RAIA_OK || fd < 0)
        return -1;
    unsetenv("RAIA_READY_FD");
    return fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0 ? -1 : (int)fd;
}

/* In the child: its own session, its log, this program again. */
static void become_daemon(const char *log, char *const *argv, int ready)
{
    char number[16];
    setsid();
    int null = open("/dev/null", O_RDONLY);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (null >= 0)
        dup2(null, 0);
    if (out >= 0) {
        dup2(out, 1);
        dup2(out, 2);
    }
    snprintf(number, sizeof number, "%d", ready);
    setenv("RAIA_READY_FD", number, 1);
    execv("/proc/self/exe", argv);
    dprintf(ready, "error cannot start this program again: %s\n", strerror(errno));
    _exit(127);
}

static raia_status read_answer(int fd, const char *name, const char *log, char *address)
{
    char text[ANSWER] = "";
    size_t len = 0;
    uint64_t deadline = deadline_in_ms(READY_MS);
    while (memchr(text, '\n', len) == NULL && len < sizeof text - 1) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int n = poll(&p, 1, deadline_left_ms(deadline));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail(RAIA_ETIMEDOUT, "%s was not ready within %d s; its log is %s", name,
                        READY_MS / 1000, log);
        ssize_t got = read(fd, text + len, sizeof text - 1 - len);
        if (got <= 0)
            return fail(RAIA_EFAIL, "%s ended while it started; its log is %s", name, log);
        len += (size_t)got;
    }
    text[len] = '\0';
    text[strcspn(text, "\n")] = '\0';
    if (!str_starts(text, "ready "))
        return fail(RAIA_EFAIL, "%s did not start: %s", name,
                    str_starts(text, "error ") ? text + 6 : text);
    snprintf(address, 300, "%.299s", text + 6);
    return RAIA_OK;
}

raia_status daemon_start(const char *state, const char *name, char *const *argv, char *address)
{
    int pipe_fds[2];
    char *log = file_of(state, name, ".log");
    if (log == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    if (pipe(pipe_fds) < 0) {
        free(log);
        return fail(RAIA_EIO, "pipe: %s", strerror(errno));
    }
    fcntl(pipe_fds[0], F_SETFD, FD_CLOEXEC);
    /* Forked twice: the daemon is nobody's child, so that nobody has to wait for it. */
    pid_t middle = fork();
    if (middle == 0) {
        pid_t daemon = fork();
        if (daemon == 0)
            become_daemon(log, argv, pipe_fds[1]);
        _exit(daemon < 0);
    }
    close(pipe_fds[1]);
    raia_status status = RAIA_OK;
    if (middle < 0)
        status = fail(RAIA_EIO, "fork: %s", strerror(errno));
    else
        while (waitpid(middle, NULL, 0) < 0 && errno == EINTR)
            ;
    if (status == RAIA_OK)
        status = read_answer(pipe_fds[0], name, log, address);
    close(pipe_fds[0]);
    free(log);
    return status;
}

/* ---- end ---- */

raia_status daemons_stop(const char *state, size_t *count)
{
    struct daemons daemons;
    char *mark = str_format("RAIA_CLUSTER=%s", state);
    if (mark == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a mark");
    raia_status status = daemons_read(state, &daemons);
    uint64_t deadline = deadline_in_ms(TERM_MS);
    for (size_t i = 0; i < daemons.count; i++)
        kill(daemons.rows[i].pid, SIGTERM);
    for (size_t i = 0; i < daemons.count; i++) {
        struct daemon *d = &daemons.rows[i];
        if (procs_wait_end(d->pid, deadline) || procs_start_time(d->pid) != d->born)
            continue;
        log_warn("%s (pid %d) did not end within %d s: killed", d->name, d->pid, TERM_MS / 1000);
        kill(d->pid, SIGKILL);
        procs_wait_end(d->pid, deadline_in_ms(MARKED_MS));
    }
    for (size_t i = 0; i < daemons.count; i++)
        daemon_leave(state, daemons.rows[i].name);
    size_t left = procs_kill_marked(mark, deadline_in_ms(MARKED_MS));
    if (status == RAIA_OK && left > 0)
        status = fail(RAIA_EFAIL, "%zu processes of the cluster would not die", left);
    *count = daemons.count;
    free(daemons.rows);
    free(mark);
    return status;
}
