/* The Ray Jobs REST API: submit, list, show, stop, delete, logs. */
#include "cluster/head_priv.h"

#include <string.h>

enum kind { TEXT, TEXT_MAP, NUMBER, WHOLE, NUMBER_MAP, OBJECT };

/* A member that a request may have. */
struct field {
    const char *name;
    enum kind kind;
};
static const struct field fields[] = {
    { "entrypoint", TEXT },
    { "submission_id", TEXT },
    { "job_id", TEXT },
    { "runtime_env", OBJECT },
    { "metadata", TEXT_MAP },
    { "entrypoint_num_cpus", NUMBER },
    { "entrypoint_num_gpus", NUMBER },
    { "entrypoint_memory", WHOLE },
    { "entrypoint_resources", NUMBER_MAP },
    { "entrypoint_label_selector", TEXT_MAP },
};

/* Members of runtime_env that would need something of raia which it does not do: to run the job
 * without them would be another job. */
static const char *const refused[] = { "pip",       "uv",
                                       "conda",     "py_executable",
                                       "container", "image_uri",
                                       "java_jars", "worker_process_setup_hook" };

static bool is_map_of(const json_t *value, bool numbers)
{
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return false;
    json_object_foreach((json_t *)(uintptr_t)value, key,
                        member) if (numbers ? !json_is_number(member)
                                            : !json_is_string(member)) return false;
    return true;
}

static bool has_kind(const json_t *value, enum kind kind)
{
    switch (kind) {
    case TEXT:
        return json_is_string(value);
    case TEXT_MAP:
        return is_map_of(value, false);
    case NUMBER:
        return json_is_number(value) && json_number_value(value) >= 0;
    case WHOLE:
        return json_is_integer(value) && json_integer_value(value) >= 0;
    case NUMBER_MAP:
        return is_map_of(value, true);
    case OBJECT:
        break;
    }
    return json_is_object(value);
}

static const char *kind_name(enum kind kind)
{
    static const char *const names[] = {
        "a string",       "an object of strings", "a number that is not negative",
        "a whole number", "an object of numbers", "an object"
    };
    return names[kind];
}

static raia_status check_member(const char *key, const json_t *value)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        if (strcmp(fields[i].name, key) != 0)
            continue;
        if (!has_kind(value, fields[i].kind))
            return fail(RAIA_EINVAL, "'%s' must be %s", key, kind_name(fields[i].kind));
        return RAIA_OK;
    }
    return fail(RAIA_EINVAL, "JobSubmitRequest got an unexpected keyword argument '%.100s'", key);
}

static raia_status check_runtime_env(const json_t *env)
{
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (json_object_get(env, refused[i]) != NULL)
            return fail(RAIA_EUNSUPPORTED,
                        "runtime_env '%s' is not supported by raia: put what it brings into the "
                        "nodes' image or into working_dir",
                        refused[i]);
    const json_t *vars = json_object_get(env, "env_vars");
    if (vars != NULL && !is_map_of(vars, false))
        return fail(RAIA_EINVAL, "runtime_env 'env_vars' must be an object of strings");
    return RAIA_OK;
}

/* Members that are null count as absent, as the contract has it. */
static json_t *without_nulls(const json_t *request)
{
    json_t *out = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)(uintptr_t)request, key, value) if (!json_is_null(value))
        json_object_set(out, key, value);
    return out;
}

static raia_status check_request(const json_t *request)
{
    const char *key, *entrypoint;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)request, key, value)
        RAIA_TRY(check_member(key, value));
    RAIA_TRY(json_get_string(request, "job", "entrypoint", &entrypoint));
    if (strlen(entrypoint) > LIMIT_ENTRYPOINT)
        return fail(RAIA_EINVAL, "'entrypoint' has %zu bytes, the limit is %zu", strlen(entrypoint),
                    LIMIT_ENTRYPOINT);
    const char *id = json_string_value(json_object_get(request, "submission_id"));
    if (id != NULL && (id[0] == '\0' || strlen(id) > LIMIT_JOB_ID))
        return fail(RAIA_EINVAL, "'submission_id' must have 1 to %d bytes", LIMIT_JOB_ID);
    return check_runtime_env(json_object_get(request, "runtime_env"));
}

void api_submit(struct web_request *request)
{
    struct head *head = web_self(request);
    struct job *job;
    if (!json_is_object(web_json(request))) {
        web_text(request, MHD_HTTP_BAD_REQUEST, "a job is submitted as a JSON object");
        return;
    }
    json_t *body = without_nulls(web_json(request));
    raia_status status = check_request(body);
    if (status != RAIA_OK) {
        web_text(request, MHD_HTTP_BAD_REQUEST, "%s", raia_error());
        json_decref(body);
        return;
    }
    status = job_create(head, body, &job);
    json_decref(body);
    if (status != RAIA_OK) { /* contract: 500, a second submission with the same id too */
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "%s", raia_error());
        return;
    }
    web_object(request, MHD_HTTP_OK,
               json_pack("{s:s, s:s}", "job_id", job->id, "submission_id", job->id));
    jobs_schedule(head);
}

void api_list(struct web_request *request)
{
    struct head *head = web_self(request);
    struct job *job, *next;
    json_t *list = json_array();
    HASH_ITER(hh, head->jobs, job, next)
    json_array_append_new(list, job_details(job));
    web_object(request, MHD_HTTP_OK, list);
}

/* The job that the path names; NULL after a 404. */
static struct job *named(struct web_request *request)
{
    struct job *job = job_find(web_self(request), web_arg(request, 0));
    if (job == NULL)
        web_text(request, MHD_HTTP_NOT_FOUND, "Job %s does not exist", web_arg(request, 0));
    return job;
}

void api_job(struct web_request *request)
{
    struct job *job = named(request);
    if (job != NULL)
        web_object(request, MHD_HTTP_OK, job_details(job));
}

void api_stop(struct web_request *request)
{
    struct job *job = named(request);
    if (job == NULL)
        return;
    bool alive = !job_is_over(job);
    if (alive)
        job_stop(job);
    web_object(request, MHD_HTTP_OK, json_pack("{s:b}", "stopped", alive));
}

void api_delete(struct web_request *request)
{
    struct job *job = named(request);
    if (job == NULL)
        return;
    if (!job_is_over(job)) {
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR,
                 "Attempted to delete job '%s', but it is in a non-terminal state %s.", job->id,
                 job_status_name(job_shown_status(job, NULL)));
        return;
    }
    raia_status status = job_forget(job);
    if (status == RAIA_OK)
        web_object(request, MHD_HTTP_OK, json_pack("{s:b}", "deleted", 1));
    else
        web_failure(request, status);
}

void api_logs(struct web_request *request)
{
    struct job *job = named(request);
    if (job != NULL)
        job_log_get(request, job);
}

void api_tail(struct web_request *request)
{
    struct job *job = named(request);
    if (job != NULL)
        job_log_tail(request, job);
}
