/* The driver: starts the ranks, watches them to their end, and says how it went. */
#include "train/train_priv.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Connections the control channel takes; the launcher says only later how many ranks there are. */
enum { MOST_RANKS = 16384, TICK_MS = 200, CAUSE_MS = 1000, GRACE_MS = 2000 };

static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

static void catch_signals(struct sigaction old[2])
{
    struct sigaction action = { .sa_handler = on_signal };
    sigemptyset(&action.sa_mask);
    stop_signal = 0;
    sigaction(SIGINT, &action, &old[0]);
    sigaction(SIGTERM, &action, &old[1]);
}

static void restore_signals(struct sigaction old[2])
{
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
}

/* ---- start ---- */

/* The program's own arguments, for the ranks. *ARGV points into *TEXT; both are the caller's. */
static raia_status own_argv(char **text, char ***argv)
{
    size_t len = 0, count = 0;
    FILE *file = fopen("/proc/self/cmdline", "re");
    struct buf all = { 0 };
    if (file == NULL)
        return fail(RAIA_EIO, "cannot read this program's own arguments");
    char block[4096];
    raia_status status = RAIA_OK;
    while (status == RAIA_OK && (len = fread(block, 1, sizeof block, file)) > 0)
        status = buf_append(&all, block, len);
    fclose(file);
    for (size_t i = 0; i < all.len; i++)
        count += all.data[i] == '\0';
    if (status == RAIA_OK)
        status = MEM_NEW(argv, count + 1);
    if (status != RAIA_OK) {
        buf_release(&all);
        return status;
    }
    char *at = all.data;
    for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
        (*argv)[i] = at;
    *text = all.data;
    return RAIA_OK;
}

static raia_status start_ranks(struct driver *d, const char *token, uint16_t port)
{
    char *text = NULL, **argv = NULL;
    const raia_scaling *s = &d->settings->scaling;
    RAIA_TRY(own_argv(&text, &argv));
    const struct launch_request request = {
        .workers = s->num_workers == RAIA_ALL ? LAUNCH_ALL : s->num_workers,
        .nodes = s->num_nodes,
        .gpus_per_worker = s->use_gpu == RAIA_GPU ? 1 : 0,
        .argv = argv,
        .control_token = token,
        .control_port = port,
        .stdout_fd = d->settings->run.json ? 2 : 1,
        .pending_s = s->pending_s,
    };
    raia_status status = launch_start(&d->launch, &request, &d->size, &d->nodes);
    free(argv);
    free(text);
    return status;
}

static raia_status open_driver(struct driver *d)
{
    char token[65];
    uint16_t port = 0;
    RAIA_TRY(reports_open(&d->reports, d->settings));
    d->before = json_object();
    d->after = json_object();
    RAIA_TRY(str_random_hex(token, 32));
    RAIA_TRY(launch_control_host(d->host, d->reach));
    const struct control_callbacks callbacks = driver_callbacks(d);
    RAIA_TRY(control_serve(&d->server, d->host, &port, token, MOST_RANKS, &callbacks));
    RAIA_TRY(start_ranks(d, token, port));
    log_info("%s: %d rank%s on %d node%s", d->settings->run.name, d->size, d->size > 1 ? "s" : "",
             d->nodes, d->nodes > 1 ? "s" : "");
    return RAIA_OK;
}

/* ---- watch ---- */

static void judge_exit(struct driver *d, const struct launch_exit *e)
{
    char text[1024];
    const char *last = e->text[0] != '\0' ? e->text : "it said nothing";
    if (e->lost)
        snprintf(text, sizeof text, "rank %d is lost with its node %d: %s", e->rank, e->node, last);
    else if (e->signal != 0)
        snprintf(text, sizeof text, "rank %d was killed by signal %d (%s); its last line: %s",
                 e->rank, e->signal, strsignal(e->signal), last);
    else if (e->code == 0)
        return;
    else
        snprintf(text, sizeof text, "rank %d exited with code %d; its last line: %s", e->rank,
                 e->code, last);
    driver_fail(d, e->rank, RAIA_EPEER, text);
}

struct watch {
    uint64_t failed_at; /* when the first failure was seen; 0: none */
    bool stopped;
};

/* After a failure the others have a moment to tell the cause, then all are stopped. */
static raia_status stop_if_failed(struct driver *d, struct watch *w)
{
    pthread_mutex_lock(&d->lock);
    if (stop_signal != 0 && d->first.status == RAIA_OK) {
        d->first = (struct failure){ .status = RAIA_ESTOPPED, .rank = -1 };
        snprintf(d->first.text, sizeof d->first.text, "stopped by signal %d (%s)", (int)stop_signal,
                 strsignal(stop_signal));
    }
    bool failed = d->first.status != RAIA_OK, sure = failed && d->first.status != RAIA_EPEER;
    char reason[2048];
    memcpy(reason, d->first.text, sizeof reason);
    pthread_mutex_unlock(&d->lock);
    if (!failed || w->stopped)
        return RAIA_OK;
    if (w->failed_at == 0)
        w->failed_at = clock_ns();
    if (!sure && clock_ns() - w->failed_at < CAUSE_MS * 1000000ULL)
        return RAIA_OK;
    w->stopped = true;
    control_server_abort(d->server, reason);
    return launch_stop(d->launch, GRACE_MS);
}

static raia_status watch_ranks(struct driver *d)
{
    struct watch w = { 0 };
    for (;;) {
        struct launch_exit e;
        raia_status status = launch_wait(d->launch, deadline_in_ms(TICK_MS), &e);
        if (status == RAIA_ENOTFOUND)
            return RAIA_OK;
        if (status == RAIA_OK && !w.stopped)
            judge_exit(d, &e);
        else if (status != RAIA_OK && status != RAIA_ETIMEDOUT)
            return status;
        RAIA_TRY(stop_if_failed(d, &w));
    }
}

/* ---- end ---- */

static const char *end_word(raia_status status)
{
    return status == RAIA_OK ? "succeeded" : status == RAIA_ESTOPPED ? "stopped" : "failed";
}

static void report_end(struct driver *d, raia_status status, const json_t *verdict)
{
    json_t *event =
        json_pack("{s:s, s:s, s:I, s:i, s:O?}", "event", "end", "status", end_word(status), "steps",
                  (json_int_t)d->reports.steps, "world_size", d->size, "fabric", verdict);
    if (event != NULL && status != RAIA_OK) {
        json_object_set_new(event, "error", json_string(raia_error()));
        json_object_set_new(event, "exit_code", json_integer(raia_exit_code(status)));
        if (d->first.rank >= 0)
            json_object_set_new(event, "rank", json_integer(d->first.rank));
    }
    if (event != NULL)
        reports_event(&d->reports, event);
    json_decref(event);
}

static raia_status show_verdict(const json_t *verdict)
{
    struct buf table = { 0 };
    raia_status status = evidence_table(verdict, &table);
    if (status == RAIA_OK && table.data != NULL)
        fputs(table.data, stderr);
    buf_release(&table);
    return status;
}

/* The job's record keeps it; a head that does not listen is no reason to fail the run. */
static void tell_verdict(struct driver *d, const json_t *verdict)
{
    json_t *event = json_pack("{s:s, s:O}", "event", "fabric", "verdict", verdict);
    if (event != NULL && launch_tell(d->launch, event) != RAIA_OK)
        log_warn("the verdict does not reach the head: %s", raia_error());
    json_decref(event);
}

static raia_status judge(struct driver *d, json_t **verdict)
{
    if (d->first.status != RAIA_OK)
        return fail(d->first.status, "%s", d->first.text);
    RAIA_TRY(driver_verdict(d, verdict));
    RAIA_TRY(show_verdict(*verdict));
    tell_verdict(d, *verdict);
    const char *state = json_string_value(json_object_get(*verdict, "status"));
    if (d->settings->run.require_fabric == NULL || (state != NULL && strcmp(state, "pass") == 0))
        return RAIA_OK;
    const char *reason = json_string_value(json_object_get(*verdict, "reason"));
    const char *mend = json_string_value(json_object_get(*verdict, "mend"));
    return fail(RAIA_EFABRIC, "the run required fabric %s: %s%s%s", d->settings->run.require_fabric,
                reason != NULL ? reason : "not proven", mend != NULL ? "; " : "",
                mend != NULL ? mend : "");
}

static void close_driver(struct driver *d)
{
    if (d->launch != NULL) {
        launch_stop(d->launch, 0);
        launch_free(d->launch);
    }
    if (d->server != NULL)
        control_server_close(d->server);
    save_abandon(&d->save);
    reports_close(&d->reports);
    json_decref(d->before);
    json_decref(d->after);
    pthread_mutex_destroy(&d->lock);
}

raia_status driver_run(const struct settings *settings)
{
    struct driver d = { .settings = settings, .first.rank = -1 };
    struct sigaction old[2];
    json_t *verdict = NULL;
    pthread_mutex_init(&d.lock, NULL);
    catch_signals(old);
    raia_status status = open_driver(&d);
    if (status == RAIA_OK)
        status = watch_ranks(&d);
    /* No callback runs after this: what it guards may be read freely. */
    if (d.server != NULL)
        control_server_close(d.server);
    d.server = NULL;
    reports_flush(&d.reports);
    if (status == RAIA_OK)
        status = judge(&d, &verdict);
    report_end(&d, status, verdict);
    char text[2048];
    snprintf(text, sizeof text, "%s", raia_error());
    json_decref(verdict);
    close_driver(&d);
    restore_signals(old);
    return status == RAIA_OK ? RAIA_OK : fail(status, "%s", text);
}
