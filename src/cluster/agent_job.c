/* A job on this node. Its processes are children of a supervisor of its own, which ends them when
 * this agent dies; the agent passes requests down and reports up. */
#include "cluster/agent_priv.h"
#include "cluster/codec.h"
#include "cluster/procs.h"
#include "cluster/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SWEEP_S = 5 };

static void try_free(struct agent_job *job);

/* ---- end ---- */

static void report(struct agent_job *job, json_t *message)
{
    if (job->forgotten)
        json_decref(message);
    else
        agent_send(job->agent, message);
}

static void confirm_closed(struct agent_job *job, size_t left)
{
    if (job->closed)
        return;
    job->closed = true;
    report(job, json_pack("{s:s, s:s, s:I}", "type", "closed", "job", job->id, "left",
                          (json_int_t)left));
    try_free(job);
}

static void remove_folder(uv_work_t *work)
{
    struct agent_job *job = work->data;
    if (dir_remove(job->setup.dir) != RAIA_OK)
        log_warn("job %s: its folder stays: %s", job->id, raia_error());
}

static void free_job(struct agent_job *job)
{
    DL_DELETE(job->agent->jobs, job);
    setup_release(&job->setup);
    json_decref(job->waiting);
    free(job->id);
    free(job->cwd);
    free(job->python_path);
    free(job);
}

static void after_removal(uv_work_t *work, int code)
{
    (void)code;
    free_job(work->data);
}

static void on_link_closed(struct link *link)
{
    struct agent_job *job = link->self;
    job->linked = false;
    try_free(job);
}

/* Frees it once nothing of it is left: folder in the making, connection, process. */
static void try_free(struct agent_job *job)
{
    if (!job->closed || job->setting_up || job->ws != NULL || job->running)
        return;
    if (job->linked) {
        if (!uv_is_closing((uv_handle_t *)&job->link.ack_timer))
            link_close(&job->link, on_link_closed);
        return;
    }
    job->sweep.data = job;
    if (job->setup.dir == NULL ||
        uv_queue_work(&job->agent->loop, &job->sweep, remove_folder, after_removal) != 0)
        free_job(job);
}

/* ---- the supervisor ---- */

static void mark_of(const struct agent_job *job, char *out, size_t size)
{
    snprintf(out, size, "RAIA_AGENT_JOB=%s/%llu", job->agent->id, (unsigned long long)job->number);
}

static void kill_rest(uv_work_t *work)
{
    struct agent_job *job = work->data;
    char mark[80];
    mark_of(job, mark, sizeof mark);
    job->left = procs_kill_marked(mark, deadline_in_ms(SWEEP_S * 1000));
}

static void after_kill(uv_work_t *work, int code)
{
    (void)code;
    struct agent_job *job = work->data;
    job->setting_up = false;
    confirm_closed(job, job->left);
}

static void on_message(void *self, json_t *message)
{
    struct agent_job *job = self;
    const char *type = json_string_value(json_object_get(message, "type"));
    if (strcmp(type, "closed") == 0)
        confirm_closed(job, (size_t)json_integer_value(json_object_get(message, "left")));
    else
        report(job, json_incref(message));
}

static void on_log(void *self, uint64_t proc, const char *text, size_t len)
{
    struct agent_job *job = self;
    if (!job->forgotten)
        link_send_log(&job->agent->link, proc, text, len);
}

static void on_frame(void *self, bool text, const void *data, size_t len)
{
    struct agent_job *job = self;
    if (link_receive(&job->link, text, data, len) == RAIA_OK)
        return;
    log_error("job %s: its supervisor: %s", job->id, raia_error());
    ws_drop(job->ws);
}

static void on_supervisor_gone(void *self, int code)
{
    (void)code;
    struct agent_job *job = self;
    job->ws = NULL;
    link_detach(&job->link);
    if (job->closed) {
        try_free(job);
        return;
    }
    log_warn("job %s: its supervisor was killed", job->id);
    job->setting_up = true; /* keeps the job while the worker thread needs it */
    job->sweep.data = job;
    if (uv_queue_work(&job->agent->loop, &job->sweep, kill_rest, after_kill) != 0)
        after_kill(&job->sweep, 0);
}

static const struct ws_events events = { .message = on_frame, .closed = on_supervisor_gone };

static void on_process_closed(uv_handle_t *handle)
{
    struct agent_job *job = handle->data;
    job->running = false;
    try_free(job);
}

static void on_process_end(uv_process_t *process, int64_t status, int signal)
{
    struct agent_job *job = process->data;
    if (status != 0 || signal != 0)
        log_warn("job %s: its supervisor ended with %lld, signal %d", job->id, (long long)status,
                 signal);
    uv_close((uv_handle_t *)process, on_process_closed);
}

/* This environment with the job's mark, by which its processes are found if the supervisor dies. */
static char **supervisor_env(char *mark)
{
    size_t n = 0;
    while (environ[n] != NULL)
        n++;
    char **env = calloc(n + 2, sizeof *env);
    for (size_t i = 0; env != NULL && i < n; i++)
        env[i] = environ[i];
    if (env != NULL)
        env[n] = mark;
    return env;
}

static raia_status run_supervisor(struct agent_job *job, int fd)
{
    char program[] = "/proc/self/exe", name[] = "raia", word[] = "supervise", mark[80];
    char *argv[] = { name, word, NULL };
    uv_stdio_container_t stdio[4] = { { .flags = UV_IGNORE },
                                      { .flags = UV_INHERIT_FD, .data.fd = 2 },
                                      { .flags = UV_INHERIT_FD, .data.fd = 2 },
                                      { .flags = UV_INHERIT_FD, .data.fd = fd } };
    mark_of(job, mark, sizeof mark);
    char **env = supervisor_env(mark);
    if (env == NULL)
        return fail(RAIA_ENOMEM, "out of memory: an environment");
    const uv_process_options_t options = { .file = program,
                                           .args = argv,
                                           .env = env,
                                           .exit_cb = on_process_end,
                                           .stdio = stdio,
                                           .stdio_count = 4,
                                           .flags = UV_PROCESS_DETACHED };
    job->process.data = job;
    int code = uv_spawn(&job->agent->loop, &job->process, &options);
    free(env);
    job->running = true; /* the handle has to be closed in either case */
    if (code == 0)
        return RAIA_OK;
    uv_close((uv_handle_t *)&job->process, on_process_closed);
    return fail(RAIA_EIO, "cannot start a supervisor: %s", uv_strerror(code));
}

static raia_status start_supervisor(struct agent_job *job)
{
    int pair[2];
    struct ws_config config = { .loop = &job->agent->loop,
                                .client = true,
                                .max_message = LIMIT_MESSAGE,
                                .events = &events,
                                .self = job };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return fail(RAIA_EIO, "socketpair: %s", strerror(errno));
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    raia_status status = run_supervisor(job, pair[1]);
    close(pair[1]);
    config.fd = pair[0];
    if (status == RAIA_OK)
        status = ws_open(&job->ws, &config);
    if (status != RAIA_OK) {
        close(pair[0]); /* a supervisor that runs sees the end and leaves */
        return status;
    }
    job->link.message = on_message;
    job->link.log = on_log;
    job->link.self = job;
    link_init(&job->link, &job->agent->loop);
    job->linked = job->started = true;
    link_attach(&job->link, job->ws, 0);
    ws_hold(job->ws, job->agent->link.high);
    return RAIA_OK;
}

/* ---- requests ---- */

static void setup_failed(struct agent_job *job, const char *reason)
{
    job->broken = true;
    report(job,
           json_pack("{s:s, s:s, s:s}", "type", "setup_failed", "job", job->id, "reason", reason));
}

/* "." and relative folders are the job's own; its packages come first in PYTHONPATH. */
static raia_status localize(const struct agent_job *job, json_t *spawn)
{
    const char *cwd;
    RAIA_TRY(json_get_string(spawn, "spawn", "cwd", &cwd));
    char *whole = strcmp(cwd, ".") == 0 ? strdup(job->cwd)
                  : cwd[0] == '/'       ? strdup(cwd)
                                        : path_join(job->cwd, cwd);
    if (whole == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    json_object_set_new(spawn, "cwd", json_string(whole));
    free(whole);
    json_t *env = json_object_get(spawn, "env");
    if (job->python_path == NULL || !json_is_object(env))
        return RAIA_OK;
    const char *given = json_string_value(json_object_get(env, "PYTHONPATH"));
    if (given == NULL)
        given = env_get("PYTHONPATH", "");
    char *path = str_format("%s%s%s", job->python_path, given[0] != '\0' ? ":" : "", given);
    json_object_set_new(env, "PYTHONPATH", json_string(path != NULL ? path : job->python_path));
    free(path);
    return RAIA_OK;
}

static void pass_on(struct agent_job *job, json_t *message)
{
    const char *type = json_string_value(json_object_get(message, "type"));
    if (strcmp(type, "spawn") == 0 && localize(job, message) != RAIA_OK)
        log_error("job %s: %s", job->id, raia_error());
    else if (job->ws != NULL)
        link_send(&job->link, json_incref(message));
}

/* The folder is there: what waited for it goes on. */
static void set_up(struct agent_job *job)
{
    raia_status status = RAIA_OK;
    if (job->setup.error != NULL)
        status = fail(RAIA_EFAIL, "%s", job->setup.error);
    else if (!job->closing)
        status = start_supervisor(job);
    if (job->closing) {
        confirm_closed(job, 0);
        return;
    }
    if (status != RAIA_OK) {
        setup_failed(job, raia_error());
        return;
    }
    size_t i;
    json_t *message;
    json_array_foreach(job->waiting, i, message) pass_on(job, message);
    json_array_clear(job->waiting);
}

static void on_setup(uv_work_t *work)
{
    setup_run(&((struct agent_job *)work->data)->setup);
}

static void after_setup(uv_work_t *work, int code)
{
    struct agent_job *job = work->data;
    job->setting_up = false;
    if (code < 0 && job->setup.error == NULL)
        job->setup.error = strdup("it was cancelled");
    set_up(job);
}

static void begin_setup(struct agent_job *job)
{
    job->setup.work.data = job;
    if (job->setup.dir == NULL) {
        set_up(job);
    } else if (uv_queue_work(&job->agent->loop, &job->setup.work, on_setup, after_setup) == 0) {
        job->setting_up = true;
    } else {
        job->setup.error = strdup("this node has no thread left");
        set_up(job);
    }
}

/* Where its folders will be. */
static raia_status plan_setup(struct agent_job *job, const json_t *open)
{
    struct setup *setup = &job->setup;
    char name[SAFE_NAME], here[4096];
    const char *package = json_string_value(json_object_get(open, "package"));
    size_t modules = json_array_size(json_object_get(open, "modules"));
    setup->agent = job->agent;
    setup->modules = json_incref(json_object_get(open, "modules"));
    if (package == NULL && modules == 0) {
        if (getcwd(here, sizeof here) == NULL || (job->cwd = strdup(here)) == NULL)
            return fail(RAIA_EIO, "the agent's own folder is gone: %s", strerror(errno));
        return RAIA_OK;
    }
    safe_name(job->id, name);
    setup->dir = str_format("%s/%llu-%s", job->agent->dir, (unsigned long long)job->number, name);
    setup->package = package != NULL ? strdup(package) : NULL;
    if (setup->dir == NULL || (package != NULL && setup->package == NULL))
        return fail(RAIA_ENOMEM, "out of memory: a job");
    job->cwd = package != NULL ? path_join(setup->dir, "work") : strdup(setup->dir);
    struct buf path = { 0 };
    raia_status status = package != NULL ? buf_printf(&path, "%s", job->cwd) : RAIA_OK;
    for (size_t i = 0; i < modules && status == RAIA_OK; i++)
        status = buf_printf(&path, "%s%s/module-%zu", path.len > 0 ? ":" : "", setup->dir, i);
    job->python_path = path.data;
    return status == RAIA_OK && job->cwd == NULL ? fail(RAIA_ENOMEM, "out of memory: a job")
                                                 : status;
}

static void open_job(struct agent *agent, const char *id, const json_t *open)
{
    struct agent_job *job = calloc(1, sizeof *job);
    if (job == NULL || (job->id = strdup(id)) == NULL || (job->waiting = json_array()) == NULL) {
        log_error("out of memory: a job");
        if (job != NULL)
            free(job->id);
        free(job);
        return;
    }
    job->agent = agent;
    job->number = ++agent->next_job;
    DL_APPEND(agent->jobs, job);
    if (agent->stopping)
        setup_failed(job, "the node is being stopped");
    else if (plan_setup(job, open) != RAIA_OK)
        setup_failed(job, raia_error());
    else
        begin_setup(job);
}

static void close_job(struct agent_job *job, int signal, int grace_ms)
{
    if (job->closing)
        return;
    job->closing = true;
    atomic_store(&job->setup.cancel, true);
    if (job->ws != NULL)
        link_send(&job->link, json_pack("{s:s, s:i, s:i}", "type", "close", "signal", signal,
                                        "grace_ms", grace_ms));
    else if (!job->setting_up)
        confirm_closed(job, 0);
}

static struct agent_job *find_job(struct agent *agent, const char *id)
{
    struct agent_job *job;
    DL_FOREACH(agent->jobs, job)
    if (!job->closed && !job->forgotten && strcmp(job->id, id) == 0)
        return job;
    return NULL;
}

void agent_job_message(struct agent *agent, json_t *message)
{
    const char *type = json_string_value(json_object_get(message, "type")), *id;
    int64_t signal = SIGTERM, grace_ms = STOP_GRACE_MS;
    if (json_get_string(message, "message", "job", &id) != RAIA_OK)
        return;
    struct agent_job *job = find_job(agent, id);
    if (strcmp(type, "open") == 0) {
        if (job == NULL)
            open_job(agent, id, message);
        return;
    }
    if (job == NULL)
        return; /* it has ended meanwhile, and said so */
    if (strcmp(type, "close") == 0) {
        json_get_i64(message, "message", "signal", 1, 64, &signal);
        json_get_i64(message, "message", "grace_ms", 0, 3600000, &grace_ms);
        close_job(job, (int)signal, (int)grace_ms);
    } else if (job->ws != NULL) {
        pass_on(job, message);
    } else if (!job->broken) {
        json_array_append(job->waiting, message);
    }
}

void agent_jobs_end(struct agent *agent, int signal, int grace_ms, bool forget)
{
    struct agent_job *job, *next;
    DL_FOREACH_SAFE(agent->jobs, job, next)
    {
        job->forgotten |= forget;
        close_job(job, signal, grace_ms);
    }
}

void agent_jobs_hold(struct agent *agent, bool hold)
{
    struct agent_job *job;
    DL_FOREACH(agent->jobs, job)
    if (job->ws != NULL)
        ws_hold(job->ws, hold);
}
