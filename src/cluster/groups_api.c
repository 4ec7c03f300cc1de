/* The API that trainers use: groups and events; and requests that wait. Every call shows the job's
 * own token. */
#include "cluster/codec.h"
#include "cluster/head_priv.h"

#include <stdlib.h>
#include <string.h>

/* ---- requests that wait ---- */

static void answer(struct web_request *request);

static void forget(void *state)
{
    struct waiter *waiter = state;
    DL_DELETE(*waiter->list, waiter);
    free(waiter);
}

static void wait_for(struct web_request *request, struct waiter **list, int64_t since, bool for_end,
                     uint64_t ms)
{
    struct waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) {
        web_text(request, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
        return;
    }
    *waiter = (struct waiter){ .list = list,
                               .request = request,
                               .since = since,
                               .for_end = for_end,
                               .deadline = deadline_in_ms(ms) };
    DL_APPEND(*list, waiter);
    web_set_state(request, waiter, forget);
}

/* Answers and takes WAITER out of its list. */
static void wake(struct waiter *waiter)
{
    struct web_request *request = waiter->request;
    web_set_state(request, NULL, NULL);
    forget(waiter);
    answer(request);
}

void waiters_wake(struct waiter *list, int64_t version, bool ended)
{
    struct waiter *waiter, *next;
    DL_FOREACH_SAFE(list, waiter, next)
    if (ended || (!waiter->for_end && version > waiter->since))
        wake(waiter);
}

void waiters_tick(struct waiter *list)
{
    struct waiter *waiter, *next;
    DL_FOREACH_SAFE(list, waiter, next)
    if (clock_ns() >= waiter->deadline)
        wake(waiter);
}

/* A whole number of the query, within 0..MAX. */
static int64_t query_number(const struct web_request *request, const char *name, int64_t fallback,
                            int64_t max)
{
    const char *text = web_query(request, name);
    int64_t value;
    if (text == NULL || str_to_i64(text, name, -1, INT64_MAX, &value) != RAIA_OK)
        return fallback;
    return value < max ? value : max;
}

/* ---- whose job ---- */

static struct job *job_of(struct web_request *request)
{
    struct head *head = web_self(request);
    const char *token = web_bearer(request);
    if (token == NULL) {
        web_text(request, MHD_HTTP_UNAUTHORIZED,
                 "Unauthorized: show the job's token "
                 "(RAIA_JOB_TOKEN) as a bearer token");
        return NULL;
    }
    struct job *job = job_by_token(head, token);
    if (job == NULL)
        web_text(request, MHD_HTTP_FORBIDDEN,
                 "Forbidden: the token is of no job that runs on this head");
    return job;
}

static struct group *group_of(struct web_request *request)
{
    struct job *job = job_of(request);
    if (job == NULL)
        return NULL;
    struct group *group = group_find(job, web_arg(request, 0));
    if (group == NULL)
        web_text(request, MHD_HTTP_NOT_FOUND, "job %s has no group %s", job->id,
                 web_arg(request, 0));
    return group;
}

static json_t *events_json(const struct job *job, int64_t since)
{
    json_t *list = json_array();
    size_t kept = json_array_size(job->events);
    for (size_t i = 0; i < kept; i++)
        if (job->event_count - (int64_t)(kept - i) >= since)
            json_array_append(list, json_array_get(job->events, i));
    return json_pack("{s:I, s:o}", "version", (json_int_t)job->event_count, "events", list);
}

/* What a request that has waited gets: what it would get now. Its job may be over, so that its
 * token is good no more. */
static void answer(struct web_request *request)
{
    struct head *head = web_self(request);
    struct job *job, *next;
    struct group *group = NULL;
    HASH_ITER(hh, head->jobs, job, next)
    {
        group = group_find(job, web_arg(request, 0));
        if (group != NULL)
            break;
    }
    if (group != NULL) {
        web_object(request, MHD_HTTP_OK, group_json(group));
        return;
    }
    job = job_find(head, web_arg(request, 0));
    if (job != NULL)
        web_object(request, MHD_HTTP_OK,
                   events_json(job, query_number(request, "since", 0, INT64_MAX)));
    else
        web_text(request, MHD_HTTP_NOT_FOUND, "it is gone");
}

/* ---- groups ---- */

void api_group_post(struct web_request *request)
{
    struct job *job = job_of(request);
    struct group *group;
    if (job == NULL)
        return;
    if (job->ending) {
        web_text(request, MHD_HTTP_CONFLICT, "job %s is ending; it gets no more ranks", job->id);
        return;
    }
    raia_status status = group_new(job, web_json(request), &group);
    if (status != RAIA_OK) {
        web_failure(request, status);
        return;
    }
    group_try(group);
    web_object(request, MHD_HTTP_OK, group_json(group));
}

void api_group_get(struct web_request *request)
{
    struct group *group = group_of(request);
    if (group == NULL)
        return;
    int64_t wait = query_number(request, "wait", 0, LIMIT_POLL_S);
    int64_t since = query_number(request, "since", -1, INT64_MAX);
    if (wait <= 0 || group->version > since || group->state == GROUP_ENDED)
        web_object(request, MHD_HTTP_OK, group_json(group));
    else
        wait_for(request, &group->waiters, since, false, (uint64_t)wait * 1000);
}

void api_group_delete(struct web_request *request)
{
    struct group *group = group_of(request);
    if (group == NULL)
        return;
    int64_t grace_ms = query_number(request, "grace_ms", STOP_GRACE_MS, 600000);
    group_stop(group, grace_ms > 0 ? (int)grace_ms : 0);
    if (group->state == GROUP_ENDED)
        web_object(request, MHD_HTTP_OK, group_json(group));
    else
        wait_for(request, &group->waiters, INT64_MAX, true, (uint64_t)grace_ms + KILL_MS);
}

/* ---- events ---- */

static void keep_verdict(struct job *job, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    json_t *verdict = json_object_get(event, "verdict");
    if (name == NULL || strcmp(name, "fabric") != 0 || !json_is_object(verdict))
        return;
    json_decref(job->verdict);
    job->verdict = json_incref(verdict);
}

void api_event_post(struct web_request *request)
{
    struct job *job = job_of(request);
    if (job == NULL)
        return;
    if (strcmp(job->id, web_arg(request, 0)) != 0) {
        web_text(request, MHD_HTTP_FORBIDDEN, "Forbidden: the token is of another job");
        return;
    }
    json_t *event = (json_t *)(uintptr_t)web_json(request);
    char *text = json_dumps(event, JSON_COMPACT);
    size_t size = text != NULL ? strlen(text) : SIZE_MAX;
    free(text);
    if (!json_is_object(event) || size > LIMIT_EVENT) {
        web_text(request, MHD_HTTP_BAD_REQUEST, "an event is a JSON object of at most %zu bytes",
                 LIMIT_EVENT);
        return;
    }
    if (job->events == NULL)
        job->events = json_array();
    if (json_array_size(job->events) >= LIMIT_EVENTS)
        json_array_remove(job->events, 0);
    json_array_append(job->events, event);
    job->event_count++;
    keep_verdict(job, event);
    waiters_wake(job->waiters, job->event_count, false);
    web_object(request, MHD_HTTP_OK, json_pack("{s:I}", "version", (json_int_t)job->event_count));
}

void api_event_get(struct web_request *request)
{
    struct head *head = web_self(request);
    struct job *job = job_find(head, web_arg(request, 0));
    if (job == NULL) {
        web_text(request, MHD_HTTP_NOT_FOUND, "Job %s does not exist", web_arg(request, 0));
        return;
    }
    int64_t wait = query_number(request, "wait", 0, LIMIT_POLL_S);
    int64_t since = query_number(request, "since", 0, INT64_MAX);
    if (wait <= 0 || job->event_count > since || job_is_over(job))
        web_object(request, MHD_HTTP_OK, events_json(job, since));
    else
        wait_for(request, &job->waiters, since, false, (uint64_t)wait * 1000);
}
