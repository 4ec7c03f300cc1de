/* A job's life: its entrypoint is placed and started on a node; when it ends, or the job is
 * stopped, everything of the job is ended on every node before its status says so. */
#include "cluster/head_priv.h"
#include "cluster/package.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { LEFTOVER_GRACE_MS = 500, LOST_GRACE_MS = 500 };
enum { FABRIC_CODE = 3 }; /* exit code of a run whose fabric verdict is not pass (RAIA_EFABRIC) */

/* ---- processes by number ---- */

struct proc *proc_new(struct job *job, struct group *group, int rank)
{
    struct proc *proc = calloc(1, sizeof *proc);
    if (proc == NULL)
        return NULL;
    *proc = (struct proc){
        .id = job->head->next_proc++, .job = job, .group = group, .rank = rank
    };
    HASH_ADD(hh, job->head->procs, id, sizeof proc->id, proc);
    return proc;
}

struct proc *proc_find(struct head *head, uint64_t id)
{
    struct proc *proc;
    HASH_FIND(hh, head->procs, &id, sizeof id, proc);
    return proc;
}

void proc_free(struct head *head, struct proc *proc)
{
    if (proc == NULL)
        return;
    HASH_DEL(head->procs, proc);
    free(proc);
}

/* ---- where a job is ---- */

struct presence *job_presence(struct job *job, const struct node *node)
{
    struct presence *p;
    DL_SEARCH_SCALAR(job->places, p, node, node);
    return p;
}

static void drop_presence(struct job *job, struct node *node)
{
    struct presence *p = job_presence(job, node);
    if (p == NULL)
        return;
    DL_DELETE(job->places, p);
    free(p);
}

static const json_t *runtime_env(const struct job *job, const char *key)
{
    return json_object_get(json_object_get(job->request, "runtime_env"), key);
}

raia_status job_open_on(struct job *job, struct node *node)
{
    struct presence *p;
    if (job_presence(job, node) != NULL)
        return RAIA_OK;
    RAIA_TRY(MEM_NEW(&p, 1));
    p->node = node;
    DL_APPEND(job->places, p);
    const char *uri = json_string_value(runtime_env(job, "working_dir")), *name = NULL;
    if (uri != NULL)
        RAIA_TRY(package_name_of(uri, &name));
    json_t *message =
        json_pack("{s:s, s:s, s:s?}", "type", "open", "job", job->id, "package", name);
    json_t *modules = json_array();
    const json_t *list = runtime_env(job, "py_modules");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *module = json_string_value(json_array_get(list, i));
        if (module != NULL && package_name_of(module, &name) == RAIA_OK)
            json_array_append_new(modules, json_string(name));
    }
    json_object_set_new(message, "modules", modules);
    node_send(node, message);
    return RAIA_OK;
}

/* ---- the environment of a job's processes ---- */

static void put(json_t *env, const char *name, const char *value)
{
    if (value != NULL)
        json_object_set_new(env, name, json_string(value));
}

/* What Ray's own libraries read of their job. */
static void put_ray_config(json_t *env, const struct job *job)
{
    json_t *metadata =
        json_pack("{s:s, s:s}", "job_submission_id", job->id, "job_name", job->id);
    json_t *given = json_object_get(job->request, "metadata");
    json_t *renv = json_object_get(job->request, "runtime_env");
    if (given != NULL)
        json_object_update(metadata, given);
    json_t *config = json_pack("{s:o, s:o}", "runtime_env",
                               renv != NULL ? json_incref(renv) : json_object(), "metadata",
                               metadata);
    char *text = config != NULL ? json_dumps(config, JSON_COMPACT) : NULL;
    put(env, "RAY_JOB_CONFIG_JSON_ENV_VAR", text);
    free(text);
    json_decref(config);
}

json_t *job_env(const struct job *job, const struct node *node)
{
    const json_t *given = runtime_env(job, "env_vars");
    json_t *env = json_is_object(given) ? json_deep_copy(given) : json_object();
    const json_t *metadata = json_object_get(job->request, "metadata");
    put(env, "RAIA_NODE_ADDRESS", node_address(node));
    put(env, "RAIA_ADDRESS", node->base);
    put(env, "RAIA_JOB_ID", job->id);
    put(env, "RAIA_JOB_TOKEN", job->token);
    put(env, "RAIA_REQUIRE_FABRIC",
        json_string_value(json_object_get(metadata, "raia.require_fabric")));
    put(env, "RAY_API_SERVER_ADDRESS", node->base);
    put(env, "PYTHONUNBUFFERED", "1");
    put_ray_config(env, job);
    return env;
}

/* ---- start ---- */

static void put_gpus(json_t *env, const int *gpus, int count)
{
    struct buf list = { 0 };
    for (int i = 0; i < count; i++)
        if (buf_printf(&list, "%s%d", i > 0 ? "," : "", gpus[i]) != RAIA_OK)
            break;
    if (count > 0)
        put(env, "CUDA_VISIBLE_DEVICES", list.data);
    buf_release(&list);
}

static void fail_start(struct job *job, const char *type, const char *text)
{
    job_set_message(job, "%s", text);
    job_log_note(job, "raia: %s", text);
    job_end(job, JOB_FAILED, type, SIGKILL, 0);
}

static void start_entrypoint(struct job *job, struct node *node)
{
    struct proc *proc = proc_new(job, NULL, -1);
    raia_status status = proc == NULL ? fail(RAIA_ENOMEM, "out of memory: a process") : RAIA_OK;
    job->node = node;
    node->entrypoints++;
    snprintf(job->node_id, sizeof job->node_id, "%s", node->id);
    snprintf(job->node_address, sizeof job->node_address, "%s", node_address(node));
    if (status == RAIA_OK)
        status = job_open_on(job, node);
    if (status != RAIA_OK) {
        fail_start(job, "RUNTIME_ENV_SETUP_FAILURE", raia_error());
        return;
    }
    job->proc = proc->id;
    const char *entrypoint = json_string_value(json_object_get(job->request, "entrypoint"));
    job_log_note(job, "Running entrypoint for job %s: %s", job->id, entrypoint);
    json_t *env = job_env(job, node);
    put_gpus(env, job->gpus, job->ngpus);
    node_send(node, json_pack("{s:s, s:s, s:I, s:[s, s, s], s:o, s:s, s:s}", "type", "spawn", "job",
                              job->id, "proc", (json_int_t)proc->id, "argv", "/bin/sh", "-c",
                              entrypoint, "env", env, "cwd", ".", "prefix", ""));
}

void jobs_schedule(struct head *head)
{
    struct job *job, *next;
    HASH_ITER(hh, head->jobs, job, next) {
        if (job_is_over(job) || job->ending)
            continue;
        if (job->node == NULL) {
            char why[512];
            struct node *node = place_entrypoint(job, why, sizeof why);
            if (node != NULL)
                start_entrypoint(job, node);
            else
                job_set_message(job, "Job has not started yet. %s", why);
        }
        struct group *group, *after;
        DL_FOREACH_SAFE(job->groups, group, after)
            if (group->state == GROUP_PENDING && !job->ending)
                group_try(group);
    }
}

void proc_started(struct proc *proc)
{
    struct job *job = proc->job;
    if (proc->group != NULL) {
        group_rank_started(proc->group, proc->rank);
        return;
    }
    if (job->status != JOB_PENDING || job->ending)
        return;
    job->status = JOB_RUNNING;
    free(job->message);
    job->message = NULL;
    if (job_save(job) != RAIA_OK)
        log_error("job %s: %s", job->id, raia_error());
}

/* ---- ends ---- */

static void finish(struct job *job)
{
    struct head *head = job->head;
    struct group *group, *next;
    job->status = job->outcome;
    job->end_ms = clock_wall_ms();
    proc_free(head, proc_find(head, job->proc));
    place_return_entrypoint(job);
    DL_FOREACH_SAFE(job->groups, group, next) {
        group_abandon(group, "the job has ended");
        DL_DELETE(job->groups, group);
        group_free(group);
    }
    job->token[0] = '\0';
    head->live--;
    if (job_save(job) != RAIA_OK)
        log_error("job %s: %s", job->id, raia_error());
    job_log_end(job);
    waiters_wake(job->waiters, job->event_count, true);
    log_info("job %s: %s", job->id, job_status_name(job->status));
    jobs_schedule(head);
}

void job_end(struct job *job, enum job_status outcome, const char *error_type, int signal,
             int grace_ms)
{
    if (job->ending || job_is_over(job))
        return;
    job->ending = true;
    job->outcome = outcome;
    job->error_type = error_type;
    job->close_ns = deadline_in_ms((uint64_t)grace_ms + CLOSE_MS);
    struct presence *p;
    DL_FOREACH(job->places, p)
        node_send(p->node, json_pack("{s:s, s:s, s:i, s:i}", "type", "close", "job", job->id,
                                     "signal", signal, "grace_ms", grace_ms));
    if (job->places == NULL)
        finish(job);
}

void job_closed_on(struct job *job, struct node *node, int64_t left)
{
    if (left > 0) {
        log_warn("job %s: %lld processes on node %s would not die", job->id, (long long)left,
                 node->name);
        job_log_note(job, "raia: %lld processes on node %s would not die", (long long)left,
                     node->name);
    }
    drop_presence(job, node);
    if (!job->ending) { /* its supervisor died: the node has ended what was left */
        job_node_lost(job, node, "the job's supervisor there was killed");
        return;
    }
    if (job->places == NULL && !job_is_over(job))
        finish(job);
}

void job_node_lost(struct job *job, struct node *node, const char *why)
{
    char name[256];
    struct group *group, *next;
    node_describe(node, name, sizeof name);
    drop_presence(job, node);
    DL_FOREACH_SAFE(job->groups, group, next)
        group_node_lost(group, node, why);
    if (job->node == node && !job->ending) {
        job_set_message(job, "%s, which ran the job's entrypoint, is gone: %s", name, why);
        job_log_note(job, "raia: %s", job->message);
        job_end(job, JOB_FAILED, "JOB_SUPERVISOR_ACTOR_DIED", SIGTERM, LOST_GRACE_MS);
    } else if (!job->ending && !job_is_over(job)) {
        job_log_note(job, "raia: %s is gone: %s", name, why);
    }
    if (job->node == node)
        place_return_entrypoint(job);
    if (job->ending && job->places == NULL && !job_is_over(job))
        finish(job);
}

void job_setup_failed(struct job *job, const struct node *node, const char *reason)
{
    if (job->ending)
        return;
    job_set_message(job, "node %s could not prepare the job's folder: %s", node->name, reason);
    job_log_note(job, "raia: %s", job->message);
    job_end(job, JOB_FAILED, "RUNTIME_ENV_SETUP_FAILURE", SIGKILL, 0);
}

static int stop_signal(void)
{
    return strcmp(env_get("RAY_JOB_STOP_SIGNAL", "SIGTERM"), "SIGINT") == 0 ? SIGINT : SIGTERM;
}

void job_stop(struct job *job)
{
    int64_t seconds = STOP_GRACE_MS / 1000;
    if (env_i64("RAY_JOB_STOP_WAIT_TIME_S", seconds, 0, 3600, &seconds) != RAIA_OK)
        log_warn("%s", raia_error());
    if (job->ending)
        return;
    free(job->message);
    job->message = NULL;
    job_end(job, JOB_STOPPED, NULL, stop_signal(), (int)seconds * 1000);
}

/* Contract: the exit code and the last lines. */
static void tell_failure(struct job *job, int code, int signal, const json_t *last)
{
    struct buf text = { .max = LIMIT_LAST_BYTES };
    raia_status status =
        signal != 0
            ? buf_printf(&text, "Job entrypoint command was killed by signal %d (%s)", signal,
                         strsignal(signal))
            : buf_printf(&text, "Job entrypoint command failed with exit code %d", code);
    if (status == RAIA_OK && json_array_size(last) > 0)
        status = buf_printf(&text, ", last available logs (truncated to 20,000 chars):");
    for (size_t i = 0; i < json_array_size(last) && status == RAIA_OK; i++)
        status = buf_printf(&text, "\n%s", json_string_value(json_array_get(last, i)));
    job_set_message(job, "%s", text.data != NULL ? text.data : "failed");
    buf_release(&text);
}

/* A run whose wire was not proven: what was found and what to do are worth more than last lines. */
static bool tell_verdict(struct job *job)
{
    const char *state = json_string_value(json_object_get(job->verdict, "status"));
    const char *reason = json_string_value(json_object_get(job->verdict, "reason"));
    const char *mend = json_string_value(json_object_get(job->verdict, "mend"));
    const char *required = json_string_value(json_object_get(job->verdict, "required"));
    if (state == NULL || reason == NULL || strcmp(state, "pass") == 0)
        return false;
    job_set_message(job, "the job requires fabric %s and the verdict is %s: %s%s%s",
                    required != NULL ? required : "of its own", state, reason,
                    mend != NULL ? "; " : "", mend != NULL ? mend : "");
    return true;
}

static void entrypoint_ended(struct job *job, const json_t *message)
{
    int code = (int)json_integer_value(json_object_get(message, "code"));
    int signal = (int)json_integer_value(json_object_get(message, "signal"));
    const char *reason = json_string_value(json_object_get(message, "reason"));
    if (job->ending)
        return;
    if (reason != NULL) {
        fail_start(job, "JOB_ENTRYPOINT_COMMAND_START_ERROR", reason);
        return;
    }
    job->has_exit_code = true;
    job->exit_code = signal != 0 ? -signal : code;
    bool good = signal == 0 && code == 0;
    if (good) {
        free(job->message);
        job->message = NULL;
    } else if (code != FABRIC_CODE || !tell_verdict(job)) {
        tell_failure(job, code, signal, json_object_get(message, "last"));
    }
    job_end(job, good ? JOB_SUCCEEDED : JOB_FAILED, good ? NULL : "JOB_ENTRYPOINT_COMMAND_ERROR",
            SIGTERM, LEFTOVER_GRACE_MS);
}

void proc_ended(struct proc *proc, const json_t *message)
{
    if (proc->group != NULL)
        group_rank_ended(proc->group, proc->rank, message);
    else
        entrypoint_ended(proc->job, message);
}

/* ---- deadlines ---- */

void jobs_tick(struct head *head)
{
    struct job *job, *next;
    uint64_t now = clock_ns();
    HASH_ITER(hh, head->jobs, job, next) {
        waiters_tick(job->waiters);
        if (job_is_over(job))
            continue;
        struct group *group;
        DL_FOREACH(job->groups, group)
            waiters_tick(group->waiters);
        bool late = job->node == NULL && now - job->pending_ns > PENDING_S * UINT64_C(1000000000);
        if (late && !job->ending) {
            char *text = str_format("no room in %d s: %s", PENDING_S,
                                    job->message != NULL ? job->message : "");
            fail_start(job, "JOB_SUPERVISOR_ACTOR_START_TIMEOUT", text != NULL ? text : "late");
            free(text);
        } else if (job->ending && now > job->close_ns) {
            log_warn("job %s: some nodes did not confirm its end", job->id);
            while (job->places != NULL)
                drop_presence(job, job->places->node);
            finish(job);
        }
    }
}
