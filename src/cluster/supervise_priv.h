/* supervise_priv: what the supervisor's files share. */
#ifndef RAIA_CLUSTER_SUPERVISE_PRIV_H
#define RAIA_CLUSTER_SUPERVISE_PRIV_H

#include "cluster/limits.h"
#include "cluster/link.h"
#include "cluster/procs.h"

struct supervisor;

struct child {
    struct child *prev, *next;
    struct supervisor *owner;
    uint64_t proc;
    pid_t pid;
    uv_pipe_t out;   /* what it writes to stdout and stderr */
    struct buf line; /* the unfinished line */
    char *prefix;
    char *last[LIMIT_LAST_LINES]; /* a ring */
    unsigned lines;
    int status;             /* of waitpid */
    bool reaped, ended;     /* its end is known; and has been reported */
    bool reading, out_open; /* the pipe */
    bool stopping;
    uint64_t kill_ns; /* stopping: when TERM becomes KILL; reaped: when its output is given up */
};

struct supervisor {
    uv_loop_t loop;
    uv_signal_t reaper;
    uv_timer_t sweep;
    struct ws *ws;
    struct link link;
    struct child *children;
    struct procs procs;
    bool closing, closed, orphan, sweeping;
    uint64_t kill_ns, give_up_ns, leave_ns;
};

/* Starts a process as SPAWN says and adds it. A start that fails is reported as the process's end.
 */
void child_spawn(struct supervisor *s, const json_t *spawn);
/* Reads the outputs again, or stops reading them. */
void child_hold_all(struct supervisor *s, bool hold);
/* Its end has come: reports it once its output is closed, or at once when FORCE. */
void child_settle(struct child *child, bool force);
void child_free_ended(struct supervisor *s);

#endif
