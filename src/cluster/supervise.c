#include "cluster/supervise.h"

#include "cluster/supervise_priv.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

enum { SWEEP_MS = 10, LEAVE_MS = 5000, ORPHAN_GRACE_MS = 2000 };

static void on_sweep(uv_timer_t *timer);

static void start_sweep(struct supervisor *s)
{
    if (!s->sweeping)
        uv_timer_start(&s->sweep, on_sweep, 0, SWEEP_MS);
    s->sweeping = true;
}

/* ---- ends ---- */

static void on_child_signal(uv_signal_t *handle, int number)
{
    (void)number;
    struct supervisor *s = handle->data;
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct child *child;
        DL_SEARCH_SCALAR(s->children, child, pid, pid);
        if (child == NULL || child->reaped)
            continue; /* an orphan of a job's process */
        child->status = status;
        child->reaped = true;
        /* What it left running goes with it. */
        child->stopping = true;
        child->kill_ns = clock_ns();
    }
    start_sweep(s);
}

static void choose_child(struct supervisor *s, const struct child *child)
{
    char mark[40];
    snprintf(mark, sizeof mark, "RAIA_PROC=%llu", (unsigned long long)child->proc);
    procs_clear(&s->procs);
    if (!child->reaped)
        procs_choose_tree(&s->procs, child->pid, true);
    procs_choose_session(&s->procs, child->pid);
    procs_choose_marked(&s->procs, mark, getpid());
}

static void sweep_child(struct supervisor *s, struct child *child)
{
    uint64_t now = clock_ns();
    choose_child(s, child);
    size_t left = procs_signal(&s->procs, now >= child->kill_ns ? SIGKILL : 0);
    bool late = child->reaped && now > child->kill_ns + EOF_MS * UINT64_C(1000000);
    if (child->reaped)
        child_settle(child, late);
    if (child->reaped && (left == 0 || now > child->kill_ns + KILL_MS * UINT64_C(1000000)))
        child->stopping = false;
}

/* Everything that descends from this process. */
static size_t sweep_all(struct supervisor *s)
{
    uint64_t now = clock_ns();
    procs_clear(&s->procs);
    procs_choose_tree(&s->procs, getpid(), false);
    size_t left = procs_signal(&s->procs, now >= s->kill_ns ? SIGKILL : 0);
    struct child *child;
    DL_FOREACH(s->children, child)
    child_settle(child, left == 0 && now > s->kill_ns + EOF_MS * UINT64_C(1000000));
    return left;
}

static bool all_reported(const struct supervisor *s)
{
    const struct child *child;
    DL_FOREACH(s->children, child)
    if (!child->ended || child->out_open)
        return false;
    return true;
}

static void leave_when_told(struct supervisor *s)
{
    uint64_t now = clock_ns();
    if (s->orphan || link_settled(&s->link) || now > s->leave_ns)
        uv_stop(&s->loop);
}

static void on_sweep(uv_timer_t *timer)
{
    struct supervisor *s = timer->data;
    struct child *child;
    bool busy = s->closing;
    if (s->closed) {
        leave_when_told(s);
        return;
    }
    if (procs_read(&s->procs) != RAIA_OK)
        return;
    DL_FOREACH(s->children, child)
    if (child->stopping)
        sweep_child(s, child);
    DL_FOREACH(s->children, child)
    busy |= child->stopping || (child->reaped && !child->ended);
    if (s->closing) {
        size_t left = sweep_all(s);
        bool over = clock_ns() > s->give_up_ns;
        if ((left == 0 && all_reported(s)) || over) {
            s->closed = true;
            s->leave_ns = deadline_in_ms(LEAVE_MS);
            link_send(&s->link,
                      json_pack("{s:s, s:I}", "type", "closed", "left", (json_int_t)left));
        }
    }
    child_free_ended(s);
    if (!busy) {
        uv_timer_stop(timer);
        s->sweeping = false;
    }
}

/* ---- requests ---- */

static void close_job(struct supervisor *s, int signal, int64_t grace_ms)
{
    if (s->closing)
        return;
    s->closing = true;
    s->kill_ns = deadline_in_ms((uint64_t)grace_ms);
    s->give_up_ns = deadline_in_ms((uint64_t)grace_ms + KILL_MS);
    if (procs_read(&s->procs) == RAIA_OK) {
        procs_clear(&s->procs);
        procs_choose_tree(&s->procs, getpid(), false);
        procs_signal(&s->procs, signal);
    }
    start_sweep(s);
}

static void stop_child(struct supervisor *s, uint64_t proc, int signal, int64_t grace_ms)
{
    struct child *child;
    DL_SEARCH_SCALAR(s->children, child, proc, proc);
    if (child == NULL || child->stopping || child->reaped)
        return;
    child->stopping = true;
    child->kill_ns = deadline_in_ms((uint64_t)grace_ms);
    choose_child(s, child);
    procs_signal(&s->procs, signal);
}

static void handle_stop(struct supervisor *s, const json_t *message, int signal, int64_t grace_ms)
{
    const json_t *list = json_object_get(message, "procs");
    if (procs_read(&s->procs) != RAIA_OK)
        return;
    for (size_t i = 0; i < json_array_size(list); i++)
        stop_child(s, (uint64_t)json_integer_value(json_array_get(list, i)), signal, grace_ms);
    start_sweep(s);
}

static void on_message(void *self, json_t *message)
{
    struct supervisor *s = self;
    const char *type = json_string_value(json_object_get(message, "type"));
    int64_t signal = SIGTERM, grace_ms = STOP_GRACE_MS;
    json_get_i64(message, "message", "signal", 1, 64, &signal);
    json_get_i64(message, "message", "grace_ms", 0, 3600000, &grace_ms);
    if (strcmp(type, "spawn") == 0 && !s->closing)
        child_spawn(s, message);
    else if (strcmp(type, "stop") == 0)
        handle_stop(s, message, (int)signal, grace_ms);
    else if (strcmp(type, "close") == 0)
        close_job(s, (int)signal, grace_ms);
}

static void on_level(void *self, bool high)
{
    child_hold_all(self, high);
}

static void on_frame(void *self, bool text, const void *data, size_t len)
{
    struct supervisor *s = self;
    if (link_receive(&s->link, text, data, len) != RAIA_OK) {
        log_error("supervisor: %s", raia_error());
        ws_drop(s->ws);
    }
}

static void on_agent_gone(void *self, int code)
{
    (void)code;
    struct supervisor *s = self;
    s->ws = NULL;
    s->orphan = true;
    link_detach(&s->link);
    child_hold_all(s, false);
    close_job(s, SIGTERM, ORPHAN_GRACE_MS);
}

/* ---- life ---- */

static const struct ws_events events = { .message = on_frame, .closed = on_agent_gone };

static raia_status start(struct supervisor *s)
{
    uv_loop_init(&s->loop);
    link_init(&s->link, &s->loop);
    s->link.message = on_message;
    s->link.level = on_level;
    s->link.self = s;
    uv_timer_init(&s->loop, &s->sweep);
    uv_signal_init(&s->loop, &s->reaper);
    s->sweep.data = s->reaper.data = s;
    uv_signal_start(&s->reaper, on_child_signal, SIGCHLD);
    fcntl(SUPERVISE_FD, F_SETFD, FD_CLOEXEC);
    fcntl(SUPERVISE_FD, F_SETFL, fcntl(SUPERVISE_FD, F_GETFL) | O_NONBLOCK);
    struct ws_config config = { .loop = &s->loop,
                                .fd = SUPERVISE_FD,
                                .max_message = LIMIT_MESSAGE,
                                .events = &events,
                                .self = s };
    RAIA_TRY(ws_open(&s->ws, &config));
    link_attach(&s->link, s->ws, 0);
    return RAIA_OK;
}

raia_status supervise_run(void)
{
    static struct supervisor supervisor; /* one a process */
    struct supervisor *s = &supervisor;
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || prctl(PR_SET_PDEATHSIG, 0) < 0)
        return fail(RAIA_EUNSUPPORTED, "this kernel has no subreapers");
    /* A terminal's or a stop's signal to the whole group is not for the one who must outlive it. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    RAIA_TRY(start(s));
    uv_run(&s->loop, UV_RUN_DEFAULT);
    procs_release(&s->procs);
    return RAIA_OK;
}
