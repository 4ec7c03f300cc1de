/* Groups: the ranks of one run, placed on workers, contiguous on each node. */
#include "cluster/head_priv.h"

#include "launch/launch.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_ENDS = 64 /* ranks whose last lines are shown */ };

struct group *group_find(struct job *job, const char *id)
{
    struct group *group;
    DL_FOREACH(job->groups, group)
        if (strcmp(group->id, id) == 0)
            return group;
    return NULL;
}

static void changed(struct group *group)
{
    group->version++;
    waiters_wake(group->waiters, group->version, group->state == GROUP_ENDED);
}

static void set_reason(struct group *group, const char *reason)
{
    if (group->reason != NULL && strcmp(group->reason, reason) == 0)
        return;
    free(group->reason);
    group->reason = strdup(reason);
    changed(group);
}

/* ---- making ---- */

static raia_status read_workers(const json_t *body, int *wanted)
{
    const json_t *workers = json_object_get(body, "workers");
    const char *word = json_string_value(workers);
    int64_t count;
    if (word != NULL && strcmp(word, "all") == 0) {
        *wanted = -1;
        return RAIA_OK;
    }
    RAIA_TRY(json_get_i64(body, "group", "workers", 1, LIMIT_RANKS, &count));
    *wanted = (int)count;
    return RAIA_OK;
}

static bool all_strings(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (!json_is_string(json_array_get(array, i)))
            return false;
    return json_is_array(array) && json_array_size(array) > 0;
}

static raia_status read_program(struct group *group, const json_t *body)
{
    json_t *argv = json_object_get(body, "argv"), *env = json_object_get(body, "env"), *value;
    const char *key, *cwd = ".";
    if (!all_strings(argv))
        return fail(RAIA_EINVAL, "group: 'argv' is not a list of words");
    json_object_foreach(env, key, value)
        if (!json_is_string(value) || key[0] == '\0' || strchr(key, '=') != NULL)
            return fail(RAIA_EINVAL, "group: 'env' has a member that is no text");
    if (json_object_get(body, "cwd") != NULL)
        RAIA_TRY(json_get_string(body, "group", "cwd", &cwd));
    char *text = json_dumps(body, JSON_COMPACT);
    size_t size = text != NULL ? strlen(text) : SIZE_MAX;
    free(text);
    if (size > LIMIT_SPAWN)
        return fail(RAIA_EINVAL, "group: program and environment together exceed %zu bytes",
                    LIMIT_SPAWN);
    group->argv = json_incref(argv);
    group->env = json_is_object(env) ? json_incref(env) : json_object();
    group->cwd = strdup(cwd);
    return group->cwd != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory: a group");
}

raia_status group_new(struct job *job, const json_t *body, struct group **out)
{
    struct group *group, *other;
    int live = 0;
    int64_t gpus = 0;
    DL_FOREACH(job->groups, other)
        live += other->state != GROUP_ENDED;
    if (live >= LIMIT_GROUPS)
        return fail(RAIA_EREFUSED, "the job has %d groups that have not ended", live);
    if (json_object_get(body, "gpus_per_worker") != NULL)
        RAIA_TRY(json_get_i64(body, "group", "gpus_per_worker", 0, LIMIT_WORKERS, &gpus));
    RAIA_TRY(MEM_NEW(&group, 1));
    group->job = job;
    group->gpus_per_worker = (int)gpus;
    group->pending_ns = clock_ns();
    raia_status status = read_workers(body, &group->wanted);
    if (status == RAIA_OK)
        status = read_program(group, body);
    if (status == RAIA_OK)
        status = str_random_hex(group->id, (NODE_ID - 1) / 2);
    if (status != RAIA_OK) {
        group_free(group);
        return status;
    }
    DL_APPEND(job->groups, group);
    *out = group;
    return RAIA_OK;
}

void group_free(struct group *group)
{
    waiters_wake(group->waiters, group->version, true);
    for (int i = 0; i < group->count; i++) {
        json_decref(group->ranks[i].last);
        free(group->ranks[i].gpus);
    }
    free(group->ranks);
    free(group->node_first);
    json_decref(group->node_table);
    json_decref(group->argv);
    json_decref(group->env);
    free(group->cwd);
    free(group->reason);
    free(group);
}

/* ---- starting ---- */

static json_t *rank_env(const struct group *group, int rank)
{
    static char place[LAUNCH_PLACE_VARS][LAUNCH_PLACE_LEN];
    const struct rank *r = &group->ranks[rank];
    const struct world world = { .size = group->count,
                                 .nodes = group->nodes,
                                 .node_first = group->node_first };
    if (launch_place(&world, rank, place) != RAIA_OK)
        return NULL;
    json_t *env = job_env(group->job, r->node);
    json_object_update(env, group->env);
    for (int v = 0; v < LAUNCH_PLACE_VARS; v++) {
        char *equals = strchr(place[v], '=');
        *equals = '\0';
        json_object_set_new(env, place[v], json_string(equals + 1));
    }
    struct buf list = { 0 };
    for (int g = 0; g < group->gpus_per_worker; g++)
        if (buf_printf(&list, "%s%d", g > 0 ? "," : "", r->gpus[g]) != RAIA_OK)
            break;
    if (list.len > 0)
        json_object_set_new(env, "CUDA_VISIBLE_DEVICES", json_string(list.data));
    buf_release(&list);
    return env;
}

static void release_rank(struct group *group, struct rank *rank)
{
    struct node *node = rank->node;
    if (node == NULL)
        return;
    rank->node = NULL;
    node->used_workers--;
    place_return_gpus(node, group->gpus_per_worker, rank->gpus);
    proc_free(group->job->head, proc_find(group->job->head, rank->proc));
}

static raia_status take_rank(struct group *group, int rank, struct node *node, int node_index)
{
    struct rank *r = &group->ranks[rank];
    RAIA_TRY(MEM_NEW(&r->gpus, (size_t)group->gpus_per_worker + 1));
    struct proc *proc = proc_new(group->job, group, rank);
    if (proc == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a process");
    r->proc = proc->id;
    r->node = node;
    r->node_index = node_index;
    r->code = -1;
    node->used_workers++;
    place_take_gpus(node, group->gpus_per_worker, r->gpus);
    return job_open_on(group->job, node);
}

static raia_status take_all(struct group *group, const struct placement *placement)
{
    int rank = 0;
    group->node_table = json_array();
    for (int n = 0; n < placement->count; n++) {
        struct node *node = placement->nodes[n];
        group->node_first[n] = rank;
        json_array_append_new(group->node_table,
                              json_pack("{s:s, s:s, s:s, s:i, s:i}", "name", node->name, "host",
                                        node->host, "address", node_address(node), "first_rank",
                                        rank, "ranks", placement->ranks[n]));
        for (int i = 0; i < placement->ranks[n]; i++)
            RAIA_TRY(take_rank(group, rank++, node, n));
    }
    group->node_first[placement->count] = rank;
    return RAIA_OK;
}

static raia_status start_all(struct group *group)
{
    for (int i = 0; i < group->count; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "[rank %d] ", i);
        json_t *env = rank_env(group, i);
        if (env == NULL)
            return fail_in(RAIA_EUNSUPPORTED, "rank %d", i);
        node_send(group->ranks[i].node,
                  json_pack("{s:s, s:s, s:I, s:O, s:o, s:s, s:s}", "type", "spawn", "job",
                            group->job->id, "proc", (json_int_t)group->ranks[i].proc, "argv",
                            group->argv, "env", env, "cwd", group->cwd, "prefix", prefix));
    }
    return RAIA_OK;
}

static raia_status start_group(struct group *group, const struct placement *placement)
{
    RAIA_TRY(MEM_NEW(&group->ranks, (size_t)placement->size));
    RAIA_TRY(MEM_NEW(&group->node_first, (size_t)placement->count + 1));
    group->count = group->left = placement->size;
    group->nodes = placement->count;
    RAIA_TRY(take_all(group, placement));
    return start_all(group);
}

void group_try(struct group *group)
{
    struct placement placement;
    raia_status status =
        place_ranks(group->job->head, group->wanted, group->gpus_per_worker, &placement);
    if (status != RAIA_OK) {
        set_reason(group, raia_error());
        return;
    }
    group->state = GROUP_RUNNING;
    group->job->ever_placed = true;
    status = start_group(group, &placement);
    placement_release(&placement);
    if (status != RAIA_OK)
        group_abandon(group, raia_error());
    else
        changed(group);
}

/* ---- ends ---- */

static void settle(struct group *group)
{
    if (group->left == 0)
        group->state = GROUP_ENDED;
    changed(group);
}

static void end_rank(struct group *group, struct rank *rank)
{
    release_rank(group, rank);
    if (rank->state == RANK_ENDED)
        return;
    rank->state = RANK_ENDED;
    group->left--;
}

void group_rank_started(struct group *group, int rank)
{
    if (group->ranks[rank].state != RANK_STARTING)
        return;
    group->ranks[rank].state = RANK_RUNNING;
    group->version++; /* nobody waits for a start */
}

void group_rank_ended(struct group *group, int rank, const json_t *message)
{
    struct rank *r = &group->ranks[rank];
    const char *reason = json_string_value(json_object_get(message, "reason"));
    json_t *last = json_object_get(message, "last");
    struct head *head = group->job->head;
    r->code = (int)json_integer_value(json_object_get(message, "code"));
    r->signal = (int)json_integer_value(json_object_get(message, "signal"));
    r->last = reason != NULL ? json_pack("[s]", reason) : last != NULL ? json_incref(last) : NULL;
    if (reason != NULL)
        job_log_note(group->job, "[rank %d] raia: %s", rank, reason);
    end_rank(group, r);
    settle(group);
    jobs_schedule(head);
}

void group_node_lost(struct group *group, struct node *node, const char *why)
{
    char name[256];
    bool any = false;
    node_describe(node, name, sizeof name);
    for (int i = 0; i < group->count; i++) {
        struct rank *r = &group->ranks[i];
        if (r->node != node)
            continue;
        any = r->lost = true;
        char *text = str_format("%s is gone: %s", name, why);
        r->last = json_pack("[s]", text != NULL ? text : why);
        free(text);
        end_rank(group, r);
    }
    if (any)
        settle(group);
}

void group_abandon(struct group *group, const char *why)
{
    if (group->state == GROUP_ENDED)
        return;
    free(group->reason);
    group->reason = strdup(why);
    for (int i = 0; i < group->count; i++)
        end_rank(group, &group->ranks[i]);
    group->state = GROUP_ENDED;
    changed(group);
}

void group_stop(struct group *group, int grace_ms)
{
    if (group->state == GROUP_PENDING)
        group_abandon(group, "stopped before it had room");
    if (group->state == GROUP_ENDED)
        return;
    for (int n = 0; n < group->nodes; n++) {
        json_t *procs = json_array();
        struct node *node = NULL;
        for (int i = group->node_first[n]; i < group->node_first[n + 1]; i++) {
            if (group->ranks[i].node == NULL)
                continue;
            node = group->ranks[i].node;
            json_array_append_new(procs, json_integer((json_int_t)group->ranks[i].proc));
        }
        if (node != NULL)
            node_send(node, json_pack("{s:s, s:s, s:O, s:i, s:i}", "type", "stop", "job",
                                      group->job->id, "procs", procs, "signal",
                                      grace_ms > 0 ? SIGTERM : SIGKILL, "grace_ms", grace_ms));
        json_decref(procs);
    }
}

/* ---- showing ---- */

static json_t *rank_json(const struct group *group, int i, int *shown)
{
    static const char *const states[] = { "starting", "running", "ended" };
    const struct rank *r = &group->ranks[i];
    json_t *out = json_pack("{s:i, s:i, s:i, s:s, s:i, s:b}", "rank", i, "node", r->node_index,
                            "local_rank", i - group->node_first[r->node_index], "state",
                            states[r->state], "signal", r->signal, "lost", r->lost);
    bool good = r->code == 0 && !r->lost;
    json_object_set_new(out, "exit_code", r->code >= 0 ? json_integer(r->code) : json_null());
    if (r->state == RANK_ENDED && !good && r->last != NULL && ++*shown <= SHOWN_ENDS)
        json_object_set(out, "last_lines", r->last);
    return out;
}

json_t *group_json(const struct group *group)
{
    static const char *const states[] = { "pending", "running", "ended" };
    json_t *out = json_pack("{s:s, s:s, s:I, s:s?}", "group", group->id, "state",
                            states[group->state], "version", (json_int_t)group->version, "reason",
                            group->reason);
    if (group->count == 0)
        return out;
    json_t *ranks = json_array();
    int shown = 0;
    for (int i = 0; i < group->count; i++)
        json_array_append_new(ranks, rank_json(group, i, &shown));
    json_object_set_new(out, "world_size", json_integer(group->count));
    json_object_set(out, "nodes", group->node_table);
    json_object_set_new(out, "ranks", ranks);
    return out;
}
