/* One process of a job: its start, its output, its end. */
#include "cluster/codec.h"
#include "cluster/supervise_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

enum { LAST_LINE = 2000, READ_BYTES = 64 << 10 };

/* ---- output ---- */

static void remember(struct child *child, const char *text, size_t len)
{
    char **slot = &child->last[child->lines++ % LIMIT_LAST_LINES];
    free(*slot);
    *slot = strndup(text, utf8_floor(text, len < LAST_LINE ? len : LAST_LINE));
}

static raia_status add_line(struct child *child, struct buf *out, const char *text, size_t len)
{
    RAIA_TRY(buf_append(out, child->prefix, strlen(child->prefix)));
    size_t at = out->len;
    RAIA_TRY(utf8_append(out, text, len));
    remember(child, out->data + at, out->len - at);
    return buf_append(out, "\n", 1);
}

/* Whole lines of child->line, and the rest too when ALL; lines beyond the limit are broken. */
static raia_status take_lines(struct child *child, struct buf *out, bool all)
{
    const char *text = child->line.data;
    size_t at = 0, len = child->line.len;
    while (at < len) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end != NULL ? (size_t)(end - text) - at : len - at;
        if (n > LIMIT_LINE) {
            n = utf8_floor(text + at, LIMIT_LINE);
            end = NULL;
        } else if (end == NULL && !all) {
            break;
        }
        RAIA_TRY(add_line(child, out, text + at, n));
        at += n + (end != NULL);
    }
    if (at > 0) {
        memmove(child->line.data, text + at, len - at);
        child->line.len = len - at;
    }
    return RAIA_OK;
}

static void emit(struct child *child, bool all)
{
    struct buf out = { .max = LIMIT_MESSAGE };
    if (take_lines(child, &out, all) == RAIA_OK && out.len > 0)
        link_send_log(&child->owner->link, child->proc, out.data, out.len);
    buf_release(&out);
}

static void on_room(uv_handle_t *handle, size_t size, uv_buf_t *buffer)
{
    (void)handle;
    (void)size;
    static char room[READ_BYTES]; /* one loop, one read at a time */
    *buffer = uv_buf_init(room, sizeof room);
}

static void on_out_closed(uv_handle_t *handle)
{
    struct child *child = handle->data;
    child->out_open = false;
    child_settle(child, false);
}

static void close_out(struct child *child)
{
    if (!uv_is_closing((uv_handle_t *)&child->out))
        uv_close((uv_handle_t *)&child->out, on_out_closed);
}

static void on_output(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct child *child = stream->data;
    if (n > 0) {
        if (buf_append(&child->line, buffer->base, (size_t)n) != RAIA_OK)
            buf_clear(&child->line);
        emit(child, false);
    } else if (n < 0) {
        emit(child, true);
        close_out(child);
    }
}

static void set_reading(struct child *child, bool reading)
{
    if (child->reading == reading || !child->out_open || uv_is_closing((uv_handle_t *)&child->out))
        return;
    child->reading = reading;
    if (reading)
        uv_read_start((uv_stream_t *)&child->out, on_room, on_output);
    else
        uv_read_stop((uv_stream_t *)&child->out);
}

void child_hold_all(struct supervisor *s, bool hold)
{
    struct child *child;
    DL_FOREACH(s->children, child)
    set_reading(child, !hold);
}

/* ---- end ---- */

static void report_end(struct child *child, const char *reason)
{
    json_t *last = json_array();
    unsigned n = child->lines < LIMIT_LAST_LINES ? child->lines : LIMIT_LAST_LINES;
    for (unsigned i = child->lines - n; i < child->lines; i++)
        json_array_append_new(last, json_string(child->last[i % LIMIT_LAST_LINES]));
    int code = WIFEXITED(child->status) ? WEXITSTATUS(child->status) : -1;
    int signal = WIFSIGNALED(child->status) ? WTERMSIG(child->status) : 0;
    json_t *message = json_pack("{s:s, s:I, s:i, s:i, s:s?, s:o}", "type", "ended", "proc",
                                (json_int_t)child->proc, "code", code, "signal", signal, "reason",
                                reason, "last", last);
    child->ended = true;
    link_send(&child->owner->link, message);
}

void child_settle(struct child *child, bool force)
{
    if (child->ended || !child->reaped)
        return;
    if (child->out_open && !force)
        return;
    if (child->out_open) {
        emit(child, true);
        close_out(child);
    }
    report_end(child, NULL);
}

static void free_child(struct child *child)
{
    for (int i = 0; i < LIMIT_LAST_LINES; i++)
        free(child->last[i]);
    buf_release(&child->line);
    free(child->prefix);
    free(child);
}

void child_free_ended(struct supervisor *s)
{
    struct child *child, *next;
    DL_FOREACH_SAFE(s->children, child, next)
    {
        if (!child->ended || child->out_open || child->stopping)
            continue;
        DL_DELETE(s->children, child);
        free_child(child);
    }
}

/* ---- start ---- */

struct start { /* all that the forked child needs, prepared before the fork */
    char **argv, **env;
    const char *cwd;
    int out, error;
};

static void __attribute__((noreturn)) become(const struct start *start, pid_t parent)
{
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDONLY);
    int error = 0;
    if (getppid() != parent)
        _exit(1); /* the supervisor died before the line above */
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(null, 0) < 0 || dup2(start->out, 1) < 0 || dup2(start->out, 2) < 0)
        error = errno;
    else if (chdir(start->cwd) < 0)
        error = -errno;
    if (error == 0) {
        dup3(start->error, 3, O_CLOEXEC);
        close_range(4, ~0U, 0);
        environ = start->env;
        execvp(start->argv[0], start->argv);
        error = errno;
        if (write(3, &error, sizeof error) < 0)
            _exit(126);
    } else if (write(start->error, &error, sizeof error) < 0) {
        _exit(126);
    }
    _exit(127);
}

static char **strings_of(const json_t *array)
{
    size_t n = json_array_size(array);
    char **out = calloc(n + 1, sizeof *out);
    for (size_t i = 0; out != NULL && i < n; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        out[i] = (char *)(uintptr_t)(text != NULL ? text : "");
    }
    return out;
}

static bool is_secret(const char *entry)
{
    static const char *const names[] = { "RAIA_TOKEN=", "RAY_AUTH_TOKEN=", "RAY_AUTH_TOKEN_PATH=",
                                         "RAIA_READY_FD=" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (str_starts(entry, names[i]))
            return true;
    return false;
}

static bool is_replaced(const char *entry, const json_t *env)
{
    char name[512];
    size_t n = strcspn(entry, "=");
    if (n >= sizeof name)
        return false;
    memcpy(name, entry, n);
    name[n] = '\0';
    return json_object_get(env, name) != NULL;
}

/* This process's environment without secrets, with the members of ENV over it. The array and the
 * strings made here are freed by free_env. */
static char **make_env(const json_t *env, uint64_t proc)
{
    size_t n = 0;
    while (environ[n] != NULL)
        n++;
    char **out = calloc(n + json_object_size(env) + 2, sizeof *out);
    size_t at = 0;
    for (size_t i = 0; out != NULL && i < n; i++)
        if (!is_secret(environ[i]) && !is_replaced(environ[i], env))
            out[at++] = strdup(environ[i]);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)env, key,
                        value) if (out != NULL && json_is_string(value)) out[at++] =
        str_format("%s=%s", key, json_string_value(value));
    if (out != NULL)
        out[at] = str_format("RAIA_PROC=%llu", (unsigned long long)proc);
    return out;
}

static void free_env(char **env)
{
    for (size_t i = 0; env != NULL && env[i] != NULL; i++)
        free(env[i]);
    free(env);
}

/* Forks and waits until the program runs or has failed to start. */
static raia_status launch(struct child *child, struct start *start, int out[2])
{
    int error[2], code = 0;
    if (pipe2(error, O_CLOEXEC) < 0)
        return fail(RAIA_EIO, "cannot make a pipe: %s", strerror(errno));
    start->out = out[1];
    start->error = error[1];
    pid_t parent = getpid();
    child->pid = fork();
    if (child->pid == 0)
        become(start, parent);
    close(error[1]);
    ssize_t n = child->pid > 0 ? read(error[0], &code, sizeof code) : 0;
    close(error[0]);
    if (child->pid < 0)
        return fail(RAIA_EIO, "cannot start a process: %s", strerror(errno));
    if (n == (ssize_t)sizeof code && code < 0)
        return fail(RAIA_EIO, "cannot enter folder '%s': %s", start->cwd, strerror(-code));
    if (n == (ssize_t)sizeof code)
        return fail(RAIA_EIO, "cannot start '%s' in %s: %s", start->argv[0], start->cwd,
                    strerror(code));
    return RAIA_OK;
}

static raia_status start_child(struct child *child, const json_t *spawn, int out[2])
{
    struct start start = { .argv = strings_of(json_object_get(spawn, "argv")),
                           .env = make_env(json_object_get(spawn, "env"), child->proc) };
    raia_status status = json_get_string(spawn, "spawn", "cwd", &start.cwd);
    if (status == RAIA_OK && (start.argv == NULL || start.env == NULL || start.argv[0] == NULL))
        status = fail(RAIA_EINVAL, "spawn: no arguments, or out of memory");
    if (status == RAIA_OK)
        status = launch(child, &start, out);
    free(start.argv);
    free_env(start.env);
    return status;
}

void child_spawn(struct supervisor *s, const json_t *spawn)
{
    struct child *child = calloc(1, sizeof *child);
    int out[2] = { -1, -1 };
    const char *prefix = json_string_value(json_object_get(spawn, "prefix"));
    if (child == NULL || (child->prefix = str_format("%s", prefix != NULL ? prefix : "")) == NULL) {
        free(child);
        return;
    }
    child->owner = s;
    child->line.max = LIMIT_LINE + READ_BYTES + 1;
    child->proc = (uint64_t)json_integer_value(json_object_get(spawn, "proc"));
    DL_APPEND(s->children, child);
    raia_status status = pipe2(out, O_CLOEXEC) < 0
                             ? fail(RAIA_EIO, "cannot make a pipe: %s", strerror(errno))
                             : start_child(child, spawn, out);
    if (out[1] >= 0)
        close(out[1]);
    if (status != RAIA_OK) {
        if (out[0] >= 0)
            close(out[0]);
        child->status = 127 << 8;
        child->reaped = true; /* the forked child, if any, is reaped as an orphan */
        child->pid = 0;
        report_end(child, raia_error());
        return;
    }
    uv_pipe_init(&s->loop, &child->out, 0);
    child->out.data = child;
    child->out_open = true;
    uv_pipe_open(&child->out, out[0]);
    set_reading(child, !s->link.high);
    link_send(&s->link, json_pack("{s:s, s:I, s:i}", "type", "started", "proc",
                                  (json_int_t)child->proc, "pid", (int)child->pid));
}
