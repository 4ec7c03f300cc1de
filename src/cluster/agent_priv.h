/* agent_priv: what the agent's files share.
 *
 *   agent.c       life: loop, signals, this machine's workers and GPUs
 *   agent_link.c  the connection to the head, made again whenever it ends
 *   agent_job.c   a job on this node: its supervisor, what passes between it and the head, its end
 *   agent_setup.c a job's working folder */
#ifndef RAIA_CLUSTER_AGENT_PRIV_H
#define RAIA_CLUSTER_AGENT_PRIV_H

#include "cluster/cluster.h"
#include "cluster/dial.h"
#include "cluster/limits.h"
#include "cluster/link.h"

#include <stdatomic.h>
#include <utlist.h>

enum {
    AGENT_ID = 33,
    REDIAL_MS = 300,      /* between two attempts to reach the head */
    FIRST_DIAL_S = 15,    /* the head must be there by then when the agent starts */
    HEADLESS_MS = 2000,   /* without the head for so long: its jobs are ended */
    HEADLESS_GRACE = 500, /* ms from TERM to KILL then */
    LEAVE_TICKS = 8,      /* how long the last messages may take when it stops, in ticks */
    AGENT_TICK_MS = 100,
};

struct agent;

/* A job's working folder in the making: used by one worker thread while `work` runs. */
struct setup {
    uv_work_t work;
    const struct agent *agent;
    char *dir;       /* the job's own folder, "" of the node's others; NULL: it needs none */
    char *package;   /* becomes DIR/work; NULL: none */
    json_t *modules; /* names of packages; become DIR/module-N */
    atomic_bool cancel;
    char *error; /* of a setup that failed */
};

struct agent_job {
    struct agent_job *prev, *next;
    struct agent *agent;
    char *id;
    uint64_t number;   /* on this node */
    char *cwd;         /* "." of its processes */
    char *python_path; /* NULL: unchanged */
    struct setup setup;
    bool setting_up, broken; /* broken: its folder could not be made */
    json_t *waiting;         /* requests that came before the folder was there */
    /* its supervisor */
    uv_process_t process;
    struct ws *ws;
    struct link link;
    bool started, running; /* the process was started; and has not been reaped */
    bool linked;           /* `link` is open */
    bool closing, closed;  /* "close" was asked for; was confirmed to the head */
    bool forgotten;        /* the head does not know it (any more): nothing is told */
    uv_work_t sweep;       /* kills what a dead supervisor left */
    size_t left;
};

struct agent {
    uv_loop_t loop;
    uv_timer_t tick;
    uv_signal_t term, interrupt;
    struct agent_config config;
    char id[AGENT_ID], name[80], host[80], daemon[96];
    char *dir; /* STATE/NAME: its jobs' folders */
    int workers, gpus;
    struct agent_job *jobs;
    uint64_t next_job;
    /* the head */
    uv_work_t dialling;
    struct dialled dialled;
    raia_status dial_status;
    char dial_error[512];
    char session[AGENT_ID]; /* of the head that it belongs to; "" before */
    char address[64];       /* this node's */
    struct ws *ws;
    struct link link;
    bool busy;     /* a dial is under way */
    bool welcomed; /* the head has answered this connection's hello */
    bool ready;    /* it has been welcomed once */
    uint64_t gone_ns, redial_ns, started_ns;
    bool headless; /* its jobs were ended because the head was away */
    bool stopping;
    int leaving; /* ticks since the last job ended */
    raia_status status;
    char error[768]; /* why it ends early */
};

/* ---- agent.c ---- */
/* Ends with the thread's last failure. */
void agent_fail(struct agent *agent, raia_status status);

/* ---- agent_link.c ---- */
void agent_dial(struct agent *agent);
void agent_link_tick(struct agent *agent);
void agent_link_close(struct agent *agent); /* says that it goes */
/* Sends and steals MESSAGE. */
void agent_send(struct agent *agent, json_t *message);

/* ---- agent_job.c ---- */
/* One request of the head: open, spawn, stop or close. */
void agent_job_message(struct agent *agent, json_t *message);
void agent_jobs_end(struct agent *agent, int signal, int grace_ms, bool forget);
void agent_jobs_hold(struct agent *agent, bool hold);

/* ---- agent_setup.c ---- */
/* On a worker thread: fetches and unpacks. */
void setup_run(struct setup *setup);
void setup_release(struct setup *setup);

#endif
