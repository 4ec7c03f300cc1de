/* The head's life: one loop that carries HTTP, the agents' connections, signals and deadlines. */
#include "cluster/head_priv.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 250, LEAVE_MS = 2000 };

const struct web_route head_routes[] = {
    { "GET", "/api/version", WEB_TOKEN, WEB_NO_BODY, api_version, NULL, NULL },
    { "POST", "/api/jobs/", WEB_TOKEN, WEB_JSON, api_submit, NULL, NULL },
    { "GET", "/api/jobs/", WEB_TOKEN, WEB_NO_BODY, api_list, NULL, NULL },
    { "GET", "/api/jobs/{}", WEB_TOKEN, WEB_NO_BODY, api_job, NULL, NULL },
    { "DELETE", "/api/jobs/{}", WEB_TOKEN, WEB_NO_BODY, api_delete, NULL, NULL },
    { "POST", "/api/jobs/{}/stop", WEB_TOKEN, WEB_NO_BODY, api_stop, NULL, NULL },
    { "GET", "/api/jobs/{}/logs", WEB_TOKEN, WEB_NO_BODY, api_logs, NULL, NULL },
    { "GET", "/api/jobs/{}/logs/tail", WEB_TOKEN, WEB_NO_BODY, api_tail, NULL, NULL },
    { "GET", "/api/packages/{}/{}", WEB_TOKEN, WEB_NO_BODY, api_package_get, NULL, NULL },
    { "PUT", "/api/packages/{}/{}", WEB_TOKEN, WEB_STREAM, api_package_put, api_package_chunk,
      api_package_begin },
    { "GET", "/api/healthz", WEB_OPEN, WEB_NO_BODY, api_health, NULL, NULL },
    { "GET", "/api/gcs_healthz", WEB_OPEN, WEB_NO_BODY, api_health, NULL, NULL },
    { "GET", "/api/local_raylet_healthz", WEB_OPEN, WEB_NO_BODY, api_health, NULL, NULL },
    { "GET", "/api/raia/v1/status", WEB_TOKEN, WEB_NO_BODY, api_status, NULL, NULL },
    { "GET", "/api/raia/v1/agents", WEB_AGENT, WEB_NO_BODY, nodes_join, NULL, NULL },
    { "GET", "/api/raia/v1/packages/{}", WEB_AGENT, WEB_NO_BODY, api_package_fetch, NULL, NULL },
    { "POST", "/api/raia/v1/groups", WEB_JOB, WEB_JSON, api_group_post, NULL, NULL },
    { "GET", "/api/raia/v1/groups/{}", WEB_JOB, WEB_NO_BODY, api_group_get, NULL, NULL },
    { "DELETE", "/api/raia/v1/groups/{}", WEB_JOB, WEB_NO_BODY, api_group_delete, NULL, NULL },
    { "POST", "/api/raia/v1/jobs/{}/events", WEB_JOB, WEB_JSON, api_event_post, NULL, NULL },
    { "GET", "/api/raia/v1/jobs/{}/events", WEB_TOKEN, WEB_NO_BODY, api_event_get, NULL, NULL },
    { .method = NULL },
};

/* ---- the end ---- */

static void on_web_freed(void *self)
{
    struct head *head = self;
    head->web = NULL;
    uv_stop(&head->loop);
}

static void leave_when_alone(struct head *head)
{
    if (!head->stopping || head->upgraded > 0 || head->web_closing)
        return;
    head->web_closing = true;
    web_stop(head->web, on_web_freed);
}

void head_socket_opened(struct head *head)
{
    head->upgraded++;
}

void head_socket_closed(struct head *head)
{
    head->upgraded--;
    leave_when_alone(head);
}

static void on_late(uv_timer_t *tick)
{
    log_warn("connections did not end in time; leaving");
    uv_stop(tick->loop);
}

void head_stop(struct head *head)
{
    if (head->stopping)
        return;
    head->stopping = true;
    log_info("stopping");
    struct job *job, *next;
    HASH_ITER(hh, head->jobs, job, next)
    {
        if (!job_is_over(job)) {
            job->status = JOB_FAILED;
            job->error_type = "JOB_SUPERVISOR_ACTOR_DIED";
            job->end_ms = clock_wall_ms();
            job_set_message(job, "the head was stopped while the job ran");
            if (job_save(job) != RAIA_OK)
                log_error("%s", raia_error());
        }
        job_log_drop_readers(job);
    }
    nodes_close(head);
    uv_timer_start(&head->tick, on_late, LEAVE_MS, 0);
    leave_when_alone(head);
}

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    head_stop(handle->data);
}

/* ---- the loop ---- */

static void on_tick(uv_timer_t *tick)
{
    struct head *head = tick->data;
    nodes_tick(head);
    jobs_tick(head);
}

static void start_loop(struct head *head)
{
    uv_timer_init(&head->loop, &head->tick);
    uv_signal_init(&head->loop, &head->term);
    uv_signal_init(&head->loop, &head->interrupt);
    head->tick.data = head->term.data = head->interrupt.data = head;
    uv_timer_start(&head->tick, on_tick, TICK_MS, TICK_MS);
    uv_signal_start(&head->term, on_signal, SIGTERM);
    uv_signal_start(&head->interrupt, on_signal, SIGINT);
}

static raia_status make_folder(const struct head *head, const char *name, char **out)
{
    *out = str_format("%s/head/%s", head->config.state, name);
    if (*out == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    return dir_make(*out, 0700);
}

static raia_status open_state(struct head *head)
{
    char *db = NULL;
    RAIA_TRY(make_folder(head, "packages", &head->packages));
    RAIA_TRY(make_folder(head, "logs", &head->logs));
    RAIA_TRY(str_random_hex(head->session, 16));
    db = str_format("%s/head/state.db", head->config.state);
    if (db == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    raia_status status = jobstore_open(&head->store, db);
    free(db);
    RAIA_TRY(status);
    return jobs_load(head);
}

static bool is_any(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
}

static raia_status listen_here(struct head *head)
{
    uint16_t port = head->config.port;
    int fd;
    RAIA_TRY(net_listen(head->config.host, &port, 512, &fd));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    const char *host = is_any(head->config.host) ? "127.0.0.1" : head->config.host;
    bool v6 = strchr(host, ':') != NULL;
    head->address =
        str_format("http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "", (unsigned)port);
    const struct web_config config = { .loop = &head->loop,
                                       .fd = fd,
                                       .routes = head_routes,
                                       .token = head->config.token,
                                       .self = head };
    raia_status status = head->address == NULL ? fail(RAIA_ENOMEM, "out of memory: an address")
                                               : web_start(&head->web, &config);
    if (status != RAIA_OK)
        close(fd);
    return status;
}

static void warn_if_open(const struct head *head)
{
    const char *host = head->config.host;
    if (head->config.token == NULL && !str_starts(host, "127.") && strcmp(host, "::1") != 0 &&
        strcmp(host, "localhost") != 0)
        log_warn("anyone who reaches %s can run programs here: set RAIA_TOKEN for head, agents "
                 "and clients, or listen on 127.0.0.1",
                 host);
}

static raia_status open_head(struct head *head)
{
    uv_loop_init(&head->loop);
    RAIA_TRY(open_state(head));
    RAIA_TRY(listen_here(head));
    start_loop(head);
    warn_if_open(head);
    return daemon_enter(head->config.state, "head", head->address);
}

static void release(struct head *head)
{
    struct job *job, *next;
    HASH_ITER(hh, head->jobs, job, next)
    {
        HASH_DEL(head->jobs, job);
        job_free(job);
    }
    jobstore_close(head->store);
    free(head->address);
    free(head->packages);
    free(head->logs);
}

raia_status head_run(const struct head_config *config)
{
    static struct head head; /* one a process */
    head.config = *config;
    head.next_proc = 1;
    log_set_name("head");
    signal(SIGPIPE, SIG_IGN);
    raia_status status = open_head(&head);
    if (status != RAIA_OK) {
        daemon_ready(config->ready_fd, "error %s", raia_error());
        return status;
    }
    log_info("serving %s", head.address);
    daemon_ready(config->ready_fd, "ready %s", head.address);
    uv_run(&head.loop, UV_RUN_DEFAULT);
    daemon_leave(config->state, "head");
    release(&head);
    return RAIA_OK;
}
