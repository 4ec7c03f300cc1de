/* Which workers and GPUs of which nodes. Nodes are taken in the order of their names; one node that
 * has room for all is preferred to several. */
#include "cluster/head_priv.h"

#include <stdlib.h>
#include <string.h>

static int free_gpus(const struct node *node)
{
    int count = 0;
    for (int i = 0; i < node->gpus; i++)
        count += !node->gpu_used[i];
    return count;
}

/* Ranks that NODE takes now. */
static int room_for(const struct node *node, int gpus_per_worker)
{
    int room = node->ws != NULL ? node->workers - node->used_workers : 0;
    if (gpus_per_worker > 0 && room > free_gpus(node) / gpus_per_worker)
        room = free_gpus(node) / gpus_per_worker;
    return room > 0 ? room : 0;
}

void place_take_gpus(struct node *node, int count, int *out)
{
    for (int i = 0; i < node->gpus && count > 0; i++) {
        if (node->gpu_used[i])
            continue;
        node->gpu_used[i] = true;
        *out++ = i;
        count--;
    }
}

void place_return_gpus(struct node *node, int count, const int *gpus)
{
    for (int i = 0; i < count; i++)
        node->gpu_used[gpus[i]] = false;
}

struct room {
    int nodes, workers, free, gpus, free_gpus, fit;
};

static struct room measure(struct head *head, int gpus_per_worker)
{
    struct room room = { 0 };
    struct node *node;
    DL_FOREACH(head->nodes, node)
    {
        room.nodes++;
        room.workers += node->workers;
        room.free += node->workers - node->used_workers;
        room.gpus += node->gpus;
        room.free_gpus += free_gpus(node);
        room.fit += room_for(node, gpus_per_worker);
    }
    return room;
}

/* Who holds workers now, for the reason that a person reads. */
static void holders(struct head *head, char *out, size_t size)
{
    struct job *job, *next;
    int shown = 0;
    size_t at = 0;
    out[0] = '\0';
    HASH_ITER(hh, head->jobs, job, next)
    {
        int held = 0;
        const struct group *group;
        if (job_is_over(job))
            continue;
        DL_FOREACH(job->groups, group)
        held += group->state == GROUP_RUNNING ? group->left : 0;
        if (held == 0 || ++shown > 3 || at + 1 >= size)
            continue;
        int n = snprintf(out + at, size - at, "%s job %.80s holds %d", shown > 1 ? "," : ";",
                         job->id, held);
        at += n > 0 ? (size_t)n : 0;
    }
}

static raia_status no_room(struct head *head, int wanted, int gpus_per_worker,
                           const struct room *room)
{
    char who[400];
    holders(head, who, sizeof who);
    if (gpus_per_worker > 0)
        return fail(RAIA_EREFUSED,
                    "waiting for %d workers with %d GPU%s each: %d of %d workers and %d of %d GPUs "
                    "are free%s",
                    wanted, gpus_per_worker, gpus_per_worker > 1 ? "s" : "", room->free,
                    room->workers, room->free_gpus, room->gpus, who);
    return fail(RAIA_EREFUSED, "waiting for %d workers: %d of %d are free%s", wanted, room->free,
                room->workers, who);
}

/* How many ranks "all" stands for. */
static raia_status count_all(const struct head *head, const struct room *room, int gpus_per_worker,
                             int *wanted)
{
    int there = gpus_per_worker > 0 && room->gpus / gpus_per_worker < room->workers
                    ? room->gpus / gpus_per_worker
                    : room->workers;
    if (room->workers < head->config.expected_workers)
        return fail(RAIA_EREFUSED,
                    "waiting for all %d workers that the cluster was started with: %d are here, on "
                    "%d node%s",
                    head->config.expected_workers, room->workers, room->nodes,
                    room->nodes == 1 ? "" : "s");
    if (there == 0)
        return fail(RAIA_EREFUSED, "waiting for workers: no node that has joined offers any");
    *wanted = there;
    return RAIA_OK;
}

raia_status place_ranks(struct head *head, int wanted, int gpus_per_worker, struct placement *out)
{
    struct room room = measure(head, gpus_per_worker);
    if (wanted < 0)
        RAIA_TRY(count_all(head, &room, gpus_per_worker, &wanted));
    if (wanted > room.fit)
        return no_room(head, wanted, gpus_per_worker, &room);
    *out = (struct placement){ .size = wanted };
    raia_status status = MEM_NEW(&out->nodes, (size_t)room.nodes);
    if (status == RAIA_OK)
        status = MEM_NEW(&out->ranks, (size_t)room.nodes);
    if (status != RAIA_OK) {
        placement_release(out);
        return status;
    }
    struct node *node, *whole = NULL;
    DL_FOREACH(head->nodes, node)
    if (whole == NULL && room_for(node, gpus_per_worker) >= wanted)
        whole = node;
    int left = wanted;
    DL_FOREACH(head->nodes, node)
    {
        int take = room_for(node, gpus_per_worker);
        take = whole != NULL && whole != node ? 0 : take < left ? take : left;
        if (take == 0)
            continue;
        out->nodes[out->count] = node;
        out->ranks[out->count++] = take;
        left -= take;
    }
    return RAIA_OK;
}

void placement_release(struct placement *placement)
{
    free(placement->nodes);
    free(placement->ranks);
    *placement = (struct placement){ 0 };
}

/* ---- entrypoints ---- */

struct demand {
    int cpus, gpus;
    int64_t memory;
};

static int up(const json_t *number)
{
    double value = json_is_number(number) ? json_number_value(number) : 0;
    return value > 0 ? (int)(value < INT32_MAX ? value + 0.999999 : INT32_MAX) : 0;
}

static struct demand demand_of(const struct job *job)
{
    const json_t *r = job->request;
    return (struct demand){
        .cpus = up(json_object_get(r, "entrypoint_num_cpus")),
        .gpus = up(json_object_get(r, "entrypoint_num_gpus")),
        .memory = json_integer_value(json_object_get(r, "entrypoint_memory")),
    };
}

static bool has_room(const struct node *node, const struct demand *d)
{
    return node->ws != NULL && node->cpus - node->used_cpus >= d->cpus &&
           free_gpus(node) >= d->gpus && node->memory - node->used_memory >= d->memory;
}

/* A kind of resource that no node of raia offers; NULL: none is asked for. */
static const char *unknown_resource(const struct job *job)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(job->request, "entrypoint_resources"), key,
                        value) if (up(value) > 0) return key;
    json_object_foreach(json_object_get(job->request, "entrypoint_label_selector"), key,
                        value) return key;
    return NULL;
}

static void say_why(const struct job *job, const struct demand *d, char *why, size_t size)
{
    const char *unknown = unknown_resource(job);
    if (unknown != NULL)
        snprintf(why, size, "Its entrypoint asks for '%.100s', which no node of this cluster has.",
                 unknown);
    else if (job->head->nodes == NULL)
        snprintf(why, size, "No node has joined the cluster yet (raia start --address HOST:PORT).");
    else
        snprintf(why, size,
                 "Its entrypoint asks for %d CPUs, %d GPUs and %lld bytes of memory on one node, "
                 "and no node has that free now.",
                 d->cpus, d->gpus, (long long)d->memory);
}

struct node *place_entrypoint(struct job *job, char *why, size_t size)
{
    struct demand d = demand_of(job);
    struct node *node, *best = NULL;
    if (unknown_resource(job) == NULL)
        DL_FOREACH(job->head->nodes, node)
    if (has_room(node, &d) && (best == NULL || node->entrypoints < best->entrypoints))
        best = node;
    if (best == NULL) {
        say_why(job, &d, why, size);
        return NULL;
    }
    if (d.gpus > 0 && MEM_NEW(&job->gpus, (size_t)d.gpus) != RAIA_OK) {
        snprintf(why, size, "%s", raia_error());
        return NULL;
    }
    best->used_cpus += d.cpus;
    best->used_memory += d.memory;
    job->ngpus = d.gpus;
    place_take_gpus(best, d.gpus, job->gpus);
    return best;
}

void place_return_entrypoint(struct job *job)
{
    struct node *node = job->node;
    struct demand d = demand_of(job);
    if (node == NULL)
        return;
    node->used_cpus -= d.cpus;
    node->used_memory -= d.memory;
    node->entrypoints--;
    place_return_gpus(node, job->ngpus, job->gpus);
    job->ngpus = 0;
    job->node = NULL;
}
