/* The local launcher: ranks are children of the driver, on this machine. */
#include "launch/launch_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STREAMS = 2, MAX_LOCAL = 1024 };

struct child {
    pid_t pid;
    int pidfd;         /* -1 when its end has been reported */
    int pipe[STREAMS]; /* its stdout and stderr; -1 when closed */
    struct lines lines[STREAMS];
    int node;
};
struct local {
    struct child *child;
    struct pollfd *poll; /* one for each pidfd and pipe, made anew for each wait */
    int count;
    char self[4096];
};

static bool applies(void)
{
    return true;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The environment of a rank: the driver's, with the place of the rank and the control channel. *OUT
 * is the caller's to free; its strings are borrowed. */
static raia_status make_env(char place[][LAUNCH_PLACE_LEN], char *control, char *token, char ***out)
{
    size_t n = 0;
    while (environ[n] != NULL)
        n++;
    char **env;
    RAIA_TRY(MEM_NEW(&env, n + LAUNCH_PLACE_VARS + 3));
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        bool own = str_starts(environ[i], "RAIA_CONTROL");
        for (int v = 0; v < LAUNCH_PLACE_VARS; v++)
            own = own || strncmp(environ[i], place[v], strcspn(place[v], "=") + 1) == 0;
        if (!own)
            env[at++] = environ[i];
    }
    for (int v = 0; v < LAUNCH_PLACE_VARS; v++)
        env[at++] = place[v];
    env[at++] = control;
    env[at++] = token;
    *out = env;
    return RAIA_OK;
}

static void run_child(const char *self, char *const *argv, char *const *env, const int *pipes,
                      pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    /* A group of its own, so that the terminal's Ctrl-C reaches the driver alone, which then stops
     * ranks in order. */
    setpgid(0, 0);
    int null = open("/dev/null", O_RDONLY);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (null < 0 || dup2(null, 0) < 0 || dup2(pipes[1], 1) < 0 || dup2(pipes[3], 2) < 0)
        _exit(126);
    execve(self, argv, env);
    _exit(127);
}

static raia_status start_child(struct local *local, const struct launch_request *request, int rank,
                               char *const *env)
{
    struct child *c = &local->child[rank];
    int pipes[4] = { -1, -1, -1, -1 };
    raia_status status = RAIA_OK;
    if (pipe2(pipes, O_CLOEXEC) < 0 || pipe2(pipes + 2, O_CLOEXEC) < 0) {
        status = fail(RAIA_EIO, "cannot make pipes for rank %d: %s", rank, strerror(errno));
        goto out;
    }
    pid_t parent = getpid();
    c->pid = fork();
    if (c->pid == 0)
        run_child(local->self, request->argv, env, pipes, parent);
    if (c->pid < 0) {
        status = fail(RAIA_EIO, "cannot start rank %d: %s", rank, strerror(errno));
        goto out;
    }
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    for (int s = 0; s < STREAMS; s++) {
        c->pipe[s] = pipes[2 * s];
        pipes[2 * s] = -1;
        fcntl(c->pipe[s], F_SETFL, O_NONBLOCK);
        snprintf(c->lines[s].prefix, sizeof c->lines[s].prefix, "[rank %d] ", rank);
        c->lines[s].out = s == 0 ? request->stdout_fd : STDERR_FILENO;
    }
    if (c->pidfd < 0)
        status = fail(RAIA_EIO, "cannot watch rank %d: %s", rank, strerror(errno));
out:
    for (int i = 0; i < 4; i++)
        close_fd(&pipes[i]);
    return status;
}

static raia_status start_rank(struct local *local, const struct launch_request *request,
                              const struct world *world, int rank)
{
    static char place[LAUNCH_PLACE_VARS][LAUNCH_PLACE_LEN];
    char address[300], control[320], token[128];
    char **env;
    RAIA_TRY(launch_place(world, rank, place));
    RAIA_TRY(launch_control_address(request, address, sizeof address));
    snprintf(control, sizeof control, "RAIA_CONTROL=%s", address);
    snprintf(token, sizeof token, "RAIA_CONTROL_TOKEN=%s", request->control_token);
    RAIA_TRY(make_env(place, control, token, &env));
    raia_status status = start_child(local, request, rank, env);
    free(env);
    local->child[rank].node = world_node_of(world, rank);
    return status;
}

static raia_status stop(void *impl, unsigned grace_ms);
static void release(void *impl);

static raia_status open_local(struct local **out, int count)
{
    struct local *local;
    RAIA_TRY(MEM_NEW(&local, 1));
    local->count = count;
    raia_status status = MEM_NEW(&local->child, (size_t)count);
    if (status == RAIA_OK)
        status = MEM_NEW(&local->poll, (size_t)count * (1 + STREAMS));
    ssize_t len = readlink("/proc/self/exe", local->self, sizeof local->self - 1);
    if (status == RAIA_OK && len <= 0)
        status = fail(RAIA_EIO, "cannot find this program: %s", strerror(errno));
    for (int r = 0; status == RAIA_OK && r < count; r++)
        local->child[r].pidfd = local->child[r].pipe[0] = local->child[r].pipe[1] = -1;
    if (status != RAIA_OK) {
        release(local);
        return status;
    }
    *out = local;
    return RAIA_OK;
}

static raia_status start(const struct launch_request *request, void **impl, int *world_size,
                         int *nodes)
{
    int count = request->workers == LAUNCH_ALL ? 1 : request->workers;
    int n = request->nodes > 0 ? request->nodes : 1;
    if (count < 1 || count > MAX_LOCAL)
        return fail(RAIA_EINVAL, "%d workers: this machine alone takes 1 to %d", count, MAX_LOCAL);
    if (n > count)
        return fail(RAIA_EINVAL, "%d nodes for %d workers: each node needs one", n, count);
    int *first;
    RAIA_TRY(MEM_NEW(&first, (size_t)n + 1));
    for (int i = 0; i <= n; i++)
        first[i] = (int)((int64_t)count * i / n);
    const struct world world = { .size = count, .nodes = n, .node_first = first };
    struct local *local = NULL;
    raia_status status = open_local(&local, count);
    for (int r = 0; status == RAIA_OK && r < count; r++)
        status = start_rank(local, request, &world, r);
    free(first);
    if (status != RAIA_OK && local != NULL) {
        stop(local, 0);
        release(local);
        return status;
    }
    *world_size = count;
    *nodes = n;
    *impl = local;
    return status;
}

/* Reads what has come; closes the pipe at its end. */
static void drain(struct child *c, int s)
{
    char block[8192];
    while (c->pipe[s] >= 0) {
        ssize_t got = read(c->pipe[s], block, sizeof block);
        if (got > 0) {
            lines_add(&c->lines[s], block, (size_t)got);
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else if (got < 0 && errno == EAGAIN) {
            return;
        } else {
            lines_end(&c->lines[s]);
            close_fd(&c->pipe[s]);
        }
    }
}

static bool collect(struct local *local, int rank, struct launch_exit *out)
{
    struct child *c = &local->child[rank];
    int status;
    if (c->pidfd < 0 || waitpid(c->pid, &status, WNOHANG) != c->pid)
        return false;
    for (int s = 0; s < STREAMS; s++) {
        drain(c, s);
        lines_end(&c->lines[s]);
    }
    close_fd(&c->pidfd);
    *out = (struct launch_exit){ .rank = rank, .node = c->node, .code = -1 };
    if (WIFEXITED(status))
        out->code = WEXITSTATUS(status);
    else
        out->signal = WTERMSIG(status);
    const char *last = c->lines[1].last[0] != '\0' ? c->lines[1].last : c->lines[0].last;
    snprintf(out->text, sizeof out->text, "%s", last);
    return true;
}

static int fill_poll(struct local *local)
{
    int n = 0;
    for (int r = 0; r < local->count; r++) {
        const struct child *c = &local->child[r];
        if (c->pidfd >= 0)
            local->poll[n++] = (struct pollfd){ .fd = c->pidfd, .events = POLLIN };
        for (int s = 0; s < STREAMS; s++)
            if (c->pipe[s] >= 0)
                local->poll[n++] = (struct pollfd){ .fd = c->pipe[s], .events = POLLIN };
    }
    return n;
}

static bool any_alive(const struct local *local)
{
    for (int r = 0; r < local->count; r++)
        if (local->child[r].pidfd >= 0)
            return true;
    return false;
}

static raia_status wait_next(void *impl, uint64_t deadline, struct launch_exit *out)
{
    struct local *local = impl;
    for (;;) {
        for (int r = 0; r < local->count; r++)
            for (int s = 0; s < STREAMS; s++)
                drain(&local->child[r], s);
        for (int r = 0; r < local->count; r++)
            if (collect(local, r, out))
                return RAIA_OK;
        if (!any_alive(local))
            return fail(RAIA_ENOTFOUND, "all ranks have ended");
        int left = deadline_left_ms(deadline);
        if (left == 0)
            return fail(RAIA_ETIMEDOUT, "no rank has ended yet");
        int n = poll(local->poll, (nfds_t)fill_poll(local), left);
        if (n < 0 && errno == EINTR)
            return fail(RAIA_ETIMEDOUT, "interrupted while waiting for ranks");
    }
}

static void signal_all(struct local *local, int number)
{
    for (int r = 0; r < local->count; r++)
        if (local->child[r].pidfd >= 0) {
            kill(-local->child[r].pid, number);
            kill(local->child[r].pid, number);
        }
}

static raia_status stop(void *impl, unsigned grace_ms)
{
    struct local *local = impl;
    struct launch_exit ended;
    if (grace_ms > 0) {
        signal_all(local, SIGTERM);
        uint64_t deadline = deadline_in_ms(grace_ms);
        while (any_alive(local) && deadline_left_ms(deadline) > 0)
            wait_next(local, deadline, &ended);
    }
    signal_all(local, SIGKILL);
    uint64_t deadline = deadline_in_ms(10000);
    while (any_alive(local)) {
        wait_next(local, deadline, &ended);
        if (deadline_left_ms(deadline) == 0)
            return fail(RAIA_ETIMEDOUT, "a rank does not end, though it was killed");
    }
    return RAIA_OK;
}

static void release(void *impl)
{
    struct local *local = impl;
    for (int r = 0; local->child != NULL && r < local->count; r++) {
        close_fd(&local->child[r].pidfd);
        for (int s = 0; s < STREAMS; s++)
            close_fd(&local->child[r].pipe[s]);
    }
    free(local->child);
    free(local->poll);
    free(local);
}

const struct launcher launch_local = { "local", applies, start, wait_next, stop, NULL, release };
