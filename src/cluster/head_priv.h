/* head_priv: what the head's files share.
 *
 *   head.c       life: loop, signals, deadlines, routes
 *   nodes.c      the agents' connections; what they report is handed on
 *   jobs.c       a job's record: keeping, loading, showing it
 *   job_run.c    a job's life: placing its entrypoint, ending it on every node
 *   job_log.c    a job's log: writing, reading, following
 *   jobs_api.c   the Ray Jobs REST API;  packages_api.c its packages
 *   groups.c     ranks: placing, starting, their ends;  groups_api.c the API that trainers use
 *   place.c      which workers and GPUs of which nodes
 *   status_api.c version, health, the cluster's state */
#ifndef RAIA_CLUSTER_HEAD_PRIV_H
#define RAIA_CLUSTER_HEAD_PRIV_H

#include "cluster/cluster.h"
#include "cluster/jobstore.h"
#include "cluster/limits.h"
#include "cluster/link.h"
#include "cluster/web.h"

#include <uthash.h>
#include <utlist.h>

enum { NODE_ID = 33, TOKEN_HEX = 65 };

struct head;
struct job;
struct group;

struct node { /* an agent that has joined */
    struct node *prev, *next;
    struct head *head;
    char id[NODE_ID], name[80], host[80], address[64], base[300];
    int pid, workers, gpus, cpus;
    int64_t memory;
    int used_workers, used_cpus;
    int64_t used_memory;
    bool *gpu_used; /* [gpus] */
    int entrypoints;
    struct ws *ws; /* NULL: it has a moment to come back */
    struct link link;
    uint64_t gone_ns; /* ws NULL: since when */
    bool lost;
};

enum job_status { JOB_PENDING, JOB_RUNNING, JOB_STOPPED, JOB_SUCCEEDED, JOB_FAILED };

struct presence { /* a job on a node: from "open" to "closed" */
    struct presence *prev, *next;
    struct node *node;
};

struct job {
    UT_hash_handle hh;
    struct head *head;
    char *id;
    json_t *request; /* as submitted */
    enum job_status status;
    char *message;
    const char *error_type;
    int64_t start_ms, end_ms;
    int exit_code;
    bool has_exit_code;
    char node_id[NODE_ID], node_address[64];
    char token[TOKEN_HEX];
    /* while it lives */
    struct node *node; /* of the entrypoint */
    uint64_t proc;     /* the entrypoint */
    int *gpus, ngpus;  /* the entrypoint's own */
    struct presence *places;
    struct group *groups;
    uint64_t pending_ns; /* submitted at */
    uint64_t close_ns;   /* ending: when nodes that do not answer are passed over */
    bool ending, ever_placed;
    enum job_status outcome;
    json_t *verdict; /* of its fabric, as its trainer found it; NULL: none yet */
    json_t *events;
    int64_t event_count;
    struct waiter *waiters; /* of events */
    /* its log */
    int log_fd;
    uint64_t log_size;
    bool log_full;
    struct tail *tails;
};

enum rank_state { RANK_STARTING, RANK_RUNNING, RANK_ENDED };

struct rank {
    uint64_t proc;
    struct node *node; /* NULL once it has ended */
    int node_index, code, signal;
    enum rank_state state;
    bool lost;
    json_t *last;
    int *gpus; /* [gpus_per_worker] */
};

enum group_state { GROUP_PENDING, GROUP_RUNNING, GROUP_ENDED };

struct group {
    struct group *prev, *next;
    struct job *job;
    char id[NODE_ID];
    int wanted; /* -1: all */
    int gpus_per_worker;
    json_t *argv, *env;
    char *cwd;
    int64_t version;
    enum group_state state;
    char *reason; /* pending: why; ended: why without ranks */
    struct rank *ranks;
    int count, left, nodes;
    int *node_first;    /* [nodes + 1] */
    json_t *node_table; /* what is shown of the nodes */
    struct waiter *waiters;
    uint64_t pending_ns;
};

struct proc { /* a process on some node, by its number */
    UT_hash_handle hh;
    uint64_t id;
    struct job *job;
    struct group *group; /* NULL: the entrypoint */
    int rank;
};

/* A request that waits for a version newer than SINCE, or for the end. */
struct waiter {
    struct waiter *prev, *next;
    struct waiter **list;
    struct web_request *request;
    int64_t since;
    bool for_end;
    uint64_t deadline;
};

struct head {
    uv_loop_t loop;
    struct web *web;
    int web_closing;
    uv_timer_t tick;
    uv_signal_t term, interrupt;
    struct head_config config;
    char *address, *packages, *logs;
    char session[NODE_ID]; /* of this process: what agents rejoin */
    char reach[64];        /* this machine's address as other machines know it; "" while unknown */
    struct jobstore *store;
    struct node *nodes;
    struct job *jobs;
    struct proc *procs;
    struct group *placing; /* unused between calls */
    uint64_t next_proc;
    size_t live;
    bool stopping;
    int upgraded; /* sockets that have to be given back before the web server can end */
};

/* ---- head.c ---- */
void head_stop(struct head *head);
/* Sockets that were taken from the web server; the last one given back lets the head end. */
void head_socket_opened(struct head *head);
void head_socket_closed(struct head *head);

/* ---- nodes.c ---- */
void nodes_join(struct web_request *request); /* handler: an agent's connection */
void nodes_tick(struct head *head);
void nodes_close(struct head *head);
/* Sends and steals MESSAGE. */
void node_send(struct node *node, json_t *message);
/* The node's address as other nodes know it. */
const char *node_address(const struct node *node);
void node_describe(const struct node *node, char *out, size_t size); /* "node-1 (host, 10.0.0.2)" */

/* ---- jobs.c ---- */
raia_status jobs_load(struct head *head);
raia_status job_create(struct head *head, json_t *request, struct job **out); /* borrows REQUEST */
raia_status job_save(struct job *job);
raia_status job_forget(struct job *job); /* deletes an ended job's record */
void job_free(struct job *job);
struct job *job_find(struct head *head, const char *id);
struct job *job_by_token(struct head *head, const char *token);
bool job_is_over(const struct job *job);
void job_set_message(struct job *job, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
json_t *job_details(const struct job *job);
const char *job_status_name(enum job_status status);
/* As shown: RUNNING is PENDING while the job waits for its first ranks. WHY (may be NULL) is then
 * set. */
enum job_status job_shown_status(const struct job *job, const char **why);

/* ---- job_run.c ---- */
void jobs_schedule(struct head *head); /* starts what has room; after every change of room */
void jobs_tick(struct head *head);
void job_stop(struct job *job);
/* Ends it everywhere; its status becomes OUTCOME when all nodes have confirmed. Steals nothing. */
void job_end(struct job *job, enum job_status outcome, const char *error_type, int signal,
             int grace_ms);
struct presence *job_presence(struct job *job, const struct node *node);
raia_status job_open_on(struct job *job, struct node *node);
void job_closed_on(struct job *job, struct node *node, int64_t left);
void job_node_lost(struct job *job, struct node *node, const char *why);
void job_setup_failed(struct job *job, const struct node *node, const char *reason);
void proc_started(struct proc *proc);
void proc_ended(struct proc *proc, const json_t *message);
struct proc *proc_new(struct job *job, struct group *group, int rank);
struct proc *proc_find(struct head *head, uint64_t id);
void proc_free(struct head *head, struct proc *proc);
json_t *job_env(const struct job *job, const struct node *node); /* of every process of the job */

/* ---- job_log.c ---- */
raia_status job_log_open(struct job *job);
void job_log_write(struct job *job, const char *text, size_t len);
void job_log_note(struct job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
void job_log_end(struct job *job); /* the job is over: readers see the end */
char *job_log_path(const struct job *job);
void job_log_get(struct web_request *request, struct job *job);
void job_log_tail(struct web_request *request, struct job *job);
void job_log_drop_readers(struct job *job);

/* ---- jobs_api.c, packages_api.c, groups_api.c, status_api.c: handlers ---- */
extern const struct web_route head_routes[];
void api_submit(struct web_request *request);
void api_list(struct web_request *request);
void api_job(struct web_request *request);
void api_stop(struct web_request *request);
void api_delete(struct web_request *request);
void api_logs(struct web_request *request);
void api_tail(struct web_request *request);
void api_package_get(struct web_request *request);
void api_package_fetch(struct web_request *request);
bool api_package_begin(struct web_request *request);
bool api_package_chunk(struct web_request *request, const void *data, size_t len);
void api_package_put(struct web_request *request);
bool package_is_here(const struct head *head, const char *name);
void api_group_post(struct web_request *request);
void api_group_get(struct web_request *request);
void api_group_delete(struct web_request *request);
void api_event_post(struct web_request *request);
void api_event_get(struct web_request *request);
void api_version(struct web_request *request);
void api_health(struct web_request *request);
void api_status(struct web_request *request);

/* ---- groups.c ---- */
/* Places GROUP and starts its ranks, or leaves it pending with a reason. */
void group_try(struct group *group);
raia_status group_new(struct job *job, const json_t *body, struct group **out);
void group_stop(struct group *group, int grace_ms);
void group_node_lost(struct group *group, struct node *node, const char *why);
void group_rank_started(struct group *group, int rank);
void group_rank_ended(struct group *group, int rank, const json_t *message);
/* Its job has ended: every rank that is left counts as ended. */
void group_abandon(struct group *group, const char *why);
void group_free(struct group *group);
json_t *group_json(const struct group *group);
struct group *group_find(struct job *job, const char *id);

/* ---- waiters (groups_api.c) ---- */
void waiters_wake(struct waiter *list, int64_t version, bool ended);
void waiters_tick(struct waiter *list);

/* ---- place.c ---- */
struct placement {
    struct node **nodes; /* [count] */
    int *ranks;          /* [count]: how many on each */
    int count, size;
};
/* Chooses workers for WANTED ranks (-1: all); RAIA_EREFUSED with the reason when there is no room
 * now. */
raia_status place_ranks(struct head *head, int wanted, int gpus_per_worker, struct placement *out);
void placement_release(struct placement *placement);
/* Takes COUNT GPUs of NODE; their numbers into OUT. */
void place_take_gpus(struct node *node, int count, int *out);
void place_return_gpus(struct node *node, int count, const int *gpus);
/* A node for a job's entrypoint; NULL, with the reason in WHY. Takes what the job asks for. */
struct node *place_entrypoint(struct job *job, char *why, size_t size);
void place_return_entrypoint(struct job *job);

#endif
