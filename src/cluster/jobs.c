/* A job's record: made, kept, loaded again, shown. */
#include "cluster/codec.h"
#include "cluster/head_priv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char *const names[] = { "PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED" };

const char *job_status_name(enum job_status status)
{
    return names[status];
}

bool job_is_over(const struct job *job)
{
    return job->status >= JOB_STOPPED;
}

struct job *job_find(struct head *head, const char *id)
{
    struct job *job;
    HASH_FIND_STR(head->jobs, id, job);
    return job;
}

struct job *job_by_token(struct head *head, const char *token)
{
    struct job *job, *next;
    HASH_ITER(hh, head->jobs, job, next)
    if (job->token[0] != '\0' && !job_is_over(job) && same_secret(job->token, token))
        return job;
    return NULL;
}

void job_set_message(struct job *job, const char *format, ...)
{
    struct buf text = { .max = LIMIT_JSON_BODY };
    va_list args;
    va_start(args, format);
    raia_status status = buf_vprintf(&text, format, args);
    va_end(args);
    if (status != RAIA_OK)
        return;
    free(job->message);
    job->message = text.data;
}

/* ---- keeping ---- */

raia_status job_save(struct job *job)
{
    json_t *record =
        json_pack("{s:O, s:s, s:s?, s:s?, s:I, s:I, s:s, s:s}", "request", job->request, "status",
                  names[job->status], "message", job->message, "error_type", job->error_type,
                  "start", (json_int_t)job->start_ms, "end", (json_int_t)job->end_ms, "node_id",
                  job->node_id, "node_address", job->node_address);
    if (record != NULL && job->has_exit_code)
        json_object_set_new(record, "exit_code", json_integer(job->exit_code));
    if (record != NULL && job->verdict != NULL)
        json_object_set(record, "fabric", job->verdict);
    char *text = record != NULL ? json_dumps(record, JSON_COMPACT) : NULL;
    json_decref(record);
    if (text == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a job's record");
    raia_status status = jobstore_put(job->head->store, "job", job->id, text);
    free(text);
    return status;
}

raia_status job_forget(struct job *job)
{
    RAIA_TRY(jobstore_delete(job->head->store, "job", job->id));
    job_log_drop_readers(job);
    waiters_wake(job->waiters, job->event_count, true);
    HASH_DEL(job->head->jobs, job);
    job_free(job);
    return RAIA_OK;
}

void job_free(struct job *job)
{
    struct group *group, *next;
    DL_FOREACH_SAFE(job->groups, group, next)
    group_free(group);
    json_decref(job->request);
    json_decref(job->events);
    json_decref(job->verdict);
    free(job->gpus);
    free(job->message);
    free(job->id);
    free(job);
}

/* ---- loading ---- */

/* The text's own constant, since records keep only the name. */
static const char *error_type_of(const char *text)
{
    static const char *const known[] = {
        "RUNTIME_ENV_SETUP_FAILURE",    "JOB_SUPERVISOR_ACTOR_START_TIMEOUT",
        "JOB_SUPERVISOR_ACTOR_DIED",    "JOB_ENTRYPOINT_COMMAND_START_ERROR",
        "JOB_ENTRYPOINT_COMMAND_ERROR", "JOB_SUPERVISOR_ACTOR_UNSCHEDULABLE",
    };
    for (size_t i = 0; text != NULL && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i], text) == 0)
            return known[i];
    return NULL;
}

static raia_status read_record(struct job *job, const json_t *record)
{
    const char *status = NULL, *text;
    int64_t code;
    json_t *request = json_object_get(record, "request");
    RAIA_TRY(json_get_string(record, "job record", "status", &status));
    RAIA_TRY(json_get_i64(record, "job record", "start", 0, INT64_MAX, &job->start_ms));
    RAIA_TRY(json_get_i64(record, "job record", "end", 0, INT64_MAX, &job->end_ms));
    if (!json_is_object(request))
        return fail(RAIA_EFORMAT, "job record: 'request' is missing");
    job->request = json_incref(request);
    job->verdict = json_incref(json_object_get(record, "fabric"));
    for (int i = 0; i < 5; i++)
        if (strcmp(names[i], status) == 0)
            job->status = (enum job_status)i;
    text = json_string_value(json_object_get(record, "message"));
    job->message = text != NULL ? strdup(text) : NULL;
    job->error_type = error_type_of(json_string_value(json_object_get(record, "error_type")));
    if (json_get_string(record, "", "node_id", &text) == RAIA_OK)
        snprintf(job->node_id, sizeof job->node_id, "%s", text);
    if (json_get_string(record, "", "node_address", &text) == RAIA_OK)
        snprintf(job->node_address, sizeof job->node_address, "%s", text);
    job->has_exit_code =
        json_get_i64(record, "", "exit_code", INT32_MIN, INT32_MAX, &code) == RAIA_OK;
    job->exit_code = job->has_exit_code ? (int)code : 0;
    fail_clear();
    return RAIA_OK;
}

static raia_status load_one(void *self, const char *key, const char *text)
{
    struct head *head = self;
    struct job *job;
    json_t *record;
    RAIA_TRY(json_parse(text, strlen(text), LIMIT_MESSAGE, "job record", &record));
    raia_status status = MEM_NEW(&job, 1);
    if (status != RAIA_OK) {
        json_decref(record);
        return status;
    }
    job->head = head;
    job->log_fd = -1;
    job->id = strdup(key);
    status = job->id == NULL ? fail(RAIA_ENOMEM, "out of memory") : read_record(job, record);
    json_decref(record);
    if (status != RAIA_OK) {
        job_free(job);
        log_warn("a record was left out: %s", raia_error());
        return RAIA_OK;
    }
    HASH_ADD_KEYPTR(hh, head->jobs, job->id, strlen(job->id), job);
    if (job_is_over(job))
        return RAIA_OK;
    job->status = JOB_FAILED;
    job->error_type = "JOB_SUPERVISOR_ACTOR_DIED";
    job->end_ms = clock_wall_ms();
    job_set_message(job, "the head died while the job ran; its processes were ended");
    return job_save(job);
}

raia_status jobs_load(struct head *head)
{
    return jobstore_each(head->store, "job", load_one, head);
}

/* ---- making ---- */

static raia_status new_id(char out[32])
{
    /* Contract: letters and digits without those that look alike. */
    static const char letters[] = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ123456789";
    uint32_t random[16];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return fail(RAIA_EIO, "the kernel gave no random bytes");
    memcpy(out, "raysubmit_", 10);
    for (int i = 0; i < 16; i++)
        out[10 + i] = letters[random[i] % (sizeof letters - 1)];
    out[26] = '\0';
    return RAIA_OK;
}

/* The oldest ended jobs make room. */
static raia_status make_room(struct head *head)
{
    if (head->live >= LIMIT_JOBS_LIVE)
        return fail(RAIA_EREFUSED, "%zu jobs have not ended; wait for some of them", head->live);
    struct job *job, *next;
    HASH_ITER(hh, head->jobs, job, next)
    {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the table goes with its last element only */
        if (HASH_COUNT(head->jobs) < LIMIT_JOBS)
            break;
        if (job_is_over(job))
            RAIA_TRY(job_forget(job));
    }
    return RAIA_OK;
}

raia_status job_create(struct head *head, json_t *request, struct job **out)
{
    char fresh[32];
    struct job *job;
    const char *id = json_string_value(json_object_get(request, "submission_id"));
    if (id == NULL)
        id = json_string_value(json_object_get(request, "job_id"));
    RAIA_TRY(new_id(fresh));
    id = id != NULL ? id : fresh;
    if (job_find(head, id) != NULL)
        return fail(RAIA_EFAIL,
                    "Job with submission_id %s already exists. Please use a different "
                    "submission_id.",
                    id);
    RAIA_TRY(make_room(head));
    RAIA_TRY(MEM_NEW(&job, 1));
    job->head = head;
    job->log_fd = -1;
    job->id = strdup(id);
    job->request = json_incref(request);
    job->start_ms = clock_wall_ms();
    job->pending_ns = clock_ns();
    raia_status status = job->id == NULL ? fail(RAIA_ENOMEM, "out of memory: a job")
                                         : str_random_hex(job->token, (TOKEN_HEX - 1) / 2);
    if (status == RAIA_OK)
        status = job_log_open(job);
    if (status == RAIA_OK)
        status = job_save(job);
    if (status != RAIA_OK) {
        job_free(job);
        return status;
    }
    HASH_ADD_KEYPTR(hh, head->jobs, job->id, strlen(job->id), job);
    head->live++;
    *out = job;
    return RAIA_OK;
}

/* ---- showing ---- */

enum job_status job_shown_status(const struct job *job, const char **why)
{
    const struct group *group;
    if (why != NULL)
        *why = NULL;
    if (job->status != JOB_RUNNING || job->ever_placed || job->ending)
        return job->status;
    DL_FOREACH(job->groups, group)
    {
        if (group->state != GROUP_PENDING)
            continue;
        if (why != NULL)
            *why = group->reason;
        return JOB_PENDING;
    }
    return job->status;
}

static const char *default_message(enum job_status status)
{
    switch (status) {
    case JOB_PENDING:
        return "Job has not started yet.";
    case JOB_RUNNING:
        return "Job is currently running.";
    case JOB_STOPPED:
        return "Job was intentionally stopped.";
    case JOB_SUCCEEDED:
        return "Job finished successfully.";
    case JOB_FAILED:
        break;
    }
    return "Job failed.";
}

static json_t *or_null(json_t *value)
{
    return value != NULL ? json_incref(value) : json_null();
}

static json_t *time_or_null(int64_t ms)
{
    return ms > 0 ? json_integer(ms) : json_null();
}

static json_t *text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? json_string(text) : json_null();
}

json_t *job_details(const struct job *job)
{
    const char *why;
    enum job_status status = job_shown_status(job, &why);
    char *message = why != NULL ? str_format("%s %s", default_message(JOB_PENDING), why) : NULL;
    const char *text = message != NULL        ? message
                       : job->message != NULL ? job->message
                                              : default_message(status);
    char *agent =
        job->node_address[0] != '\0' ? str_format("http://%s:52365", job->node_address) : NULL;
    /* Every key is there, in the contract's order. */
    json_t *out = json_pack(
        "{s:s, s:n, s:s, s:n, s:s, s:O, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "type",
        "SUBMISSION", "job_id", "submission_id", job->id, "driver_info", "status", names[status],
        "entrypoint", json_object_get(job->request, "entrypoint"), "message", text, "error_type",
        text_or_null(job->error_type), "start_time", time_or_null(job->start_ms), "end_time",
        time_or_null(job->end_ms), "metadata", or_null(json_object_get(job->request, "metadata")),
        "runtime_env", or_null(json_object_get(job->request, "runtime_env")),
        "driver_agent_http_address", text_or_null(agent), "driver_node_id",
        text_or_null(job->node_id), "driver_exit_code",
        job->has_exit_code ? json_integer(job->exit_code) : json_null());
    if (out != NULL && job->verdict != NULL) /* clients ignore members that they do not know */
        json_object_set(out, "fabric", job->verdict);
    free(message);
    free(agent);
    return out;
}
