/* launch: how ranks come to be. The driver (the process that calls raia_fit outside a rank) asks a
 * launcher, a row of the table in launchers.c, for W ranks; each rank is this program started again
 * with its place in the environment. A process that already finds its place in the environment is a
 * rank.
 *
 * The environment of a rank:
 *   RAIA_RANK, RAIA_WORLD_SIZE, RAIA_LOCAL_RANK, RAIA_NODE, RAIA_NODE_FIRST ("0,4,8": first rank of
 * each node, then the world size), RAIA_CONTROL (host:port of the driver's control channel),
 * RAIA_CONTROL_TOKEN. The environment of a driver inside a cluster's job: RAIA_ADDRESS (the head's
 * http://host:port), RAIA_JOB_ID, RAIA_JOB_TOKEN. */
#ifndef RAIA_LAUNCH_H
#define RAIA_LAUNCH_H

#include "fabric/fabric.h"

/* ---- a rank's side ---- */

bool launch_is_rank(void);
/* Reads the environment above; RAIA_EINVAL names the variable that is missing or wrong.
 * world->node_first is freed by launch_world_release. */
raia_status launch_world(struct world *out);
void launch_world_release(struct world *world);

/* The place of RANK as environment strings "NAME=value", for whoever starts it; of WORLD only nodes
 * and node_first are read. OUT has room for LAUNCH_PLACE_VARS of LAUNCH_PLACE_LEN bytes. */
enum { LAUNCH_PLACE_VARS = 5, LAUNCH_PLACE_LEN = 8192 };
raia_status launch_place(const struct world *world, int rank, char out[][LAUNCH_PLACE_LEN]);

/* ---- the driver's side ---- */

/* The host that the driver's control channel listens on, and by which ranks reach it: loopback when
 * every rank is here, else the address of this machine that its head's other nodes know
 * (RAIA_NODE_ADDRESS, or the one used towards the head). Both have room for 256 bytes. */
raia_status launch_control_host(char *listen_host, char *reach_host);

enum { LAUNCH_ALL = -1 }; /* all workers of the cluster, or one rank on this machine */

struct launch_request {
    int workers; /* or LAUNCH_ALL */
    int nodes;   /* local launcher only: pretend that many nodes (0: 1) */
    int gpus_per_worker;
    char *const *argv; /* the program to start again; argv[0] is replaced by its own path */
    const char *control_token;
    uint16_t control_port;
    int stdout_fd;    /* local launcher: where the ranks' stdout goes (1 or 2); stderr goes to 2 */
    double pending_s; /* how long to wait for room; 0: 600 */
};
struct launch_exit {
    int rank, node;
    int code;       /* exit code, or -1 */
    int signal;     /* or 0 */
    bool lost;      /* its node vanished */
    char text[512]; /* last lines or the reason, as far as known */
};
struct launch; /* a started group of ranks */
/* Chooses the launcher (the head's when RAIA_ADDRESS is set, else the local one), places and starts
 * the ranks. *WORLD_SIZE is what was placed. */
raia_status launch_start(struct launch **out, const struct launch_request *request, int *world_size,
                         int *nodes);
/* Waits for the next rank to end (or the deadline: RAIA_ETIMEDOUT); RAIA_ENOTFOUND when all have
 * ended. */
raia_status launch_wait(struct launch *launch, uint64_t deadline, struct launch_exit *out);
/* Ends every rank that still runs: TERM, after grace_ms KILL; waits until none is left. */
raia_status launch_stop(struct launch *launch, unsigned grace_ms);
/* Tells whoever runs the job something of it (borrowed): the verdict of its fabric. Nobody listens
 * to ranks that were started here. */
raia_status launch_tell(struct launch *launch, const json_t *event);
void launch_free(struct launch *launch);

#endif
