/* cluster: a head that keeps jobs and places their ranks, an agent on every node, and the client of
 * both. The head serves the Ray Jobs REST API and a small API of its own under /api/raia/v1.
 *
 * Processes: one head; one agent a node; under an agent one supervisor a job (supervise.h), whose
 * children are the job's entrypoint and ranks. */
#ifndef RAIA_CLUSTER_H
#define RAIA_CLUSTER_H

#include "base/base.h"

/* ---- where a machine keeps its cluster's files ---- */

/* $RAIA_STATE, else $XDG_RUNTIME_DIR/raia, else /tmp/raia-UID; made with mode 0700 and refused when
 * it is someone else's. The caller frees it. */
raia_status cluster_state_dir(char **out);
/* The head's address: GIVEN, else $RAIA_ADDRESS, else $RAY_API_SERVER_ADDRESS, else the head that
 * runs on this machine, else http://127.0.0.1:8265. As http://host:port; the caller frees it. */
raia_status cluster_address(const char *given, char **out);
/* The token that clients and agents show: $RAIA_TOKEN, $RAY_AUTH_TOKEN, the first line of
 * $RAY_AUTH_TOKEN_PATH; NULL: none. The caller frees it. */
raia_status cluster_token(char **out);

enum { CLUSTER_PORT = 8265 };

/* ---- the servers: each returns when it has been stopped ---- */

struct head_config {
    const char *host;
    uint16_t port; /* 0: any */
    const char *state;
    const char *token;    /* NULL: none is asked for */
    int expected_workers; /* what "all workers" waits for; 0: those that are there */
    int ready_fd;         /* gets one line "ready http://host:port" or "error TEXT"; -1: none */
};
raia_status head_run(const struct head_config *config);

struct agent_config {
    const char *address; /* of the head */
    const char *state;
    const char *token;
    const char *name; /* of the node; NULL: the host's */
    const char
        *node_address; /* by which other nodes reach this one; NULL: as it reaches its head */
    int workers, gpus; /* -1: as many as this machine has */
    int ready_fd;
};
raia_status agent_run(const struct agent_config *config);

/* ---- daemons of this machine: their pid files and logs in the state folder ---- */

/* One started process; lasting as STATE/NAME.json. */
struct daemon {
    char name[80]; /* "head", "agent-NODE" */
    int pid;
    uint64_t born; /* start time in clock ticks: a reused pid is another process */
    char address[300];
};
struct daemons {
    struct daemon *rows;
    size_t count;
};
/* Those that still run; the files of the others are removed. Released by free(rows). */
raia_status daemons_read(const char *state, struct daemons *out);
/* Starts this program again in the background with ARGV (its words after the program's own name);
 * returns when it is ready or has failed. ADDRESS (300 bytes) gets what it said. */
raia_status daemon_start(const char *state, const char *name, char *const *argv, char *address);
/* Writes and removes the file of the calling process. */
raia_status daemon_enter(const char *state, const char *name, const char *address);
void daemon_leave(const char *state, const char *name);
/* In a process that daemon_start has started: where to say that it is ready; -1 elsewhere. */
int daemon_ready_fd(void);
/* Tells a process that waits in daemon_start, and closes FD. */
void daemon_ready(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends all of them: TERM, then KILL; then whatever still carries the folder's mark. COUNT gets how
 * many there were. */
raia_status daemons_stop(const char *state, size_t *count);

/* ---- a head's client: blocking, every request bounded ---- */

struct client;
raia_status client_open(struct client **out, const char *address);
void client_close(struct client *client);
const char *client_address(const struct client *client);
/* One request. BODY is borrowed and may be NULL. An answer other than 200 is a failure with the
 * head's text: 404 RAIA_ENOTFOUND, 401 and 403 RAIA_EREFUSED, others RAIA_EFAIL. *OUT (may be NULL)
 * is the caller's; an empty answer gives NULL. */
raia_status client_call(struct client *client, const char *method, const char *path,
                        const json_t *body, const char *what, json_t **out);
/* "/api/jobs/ID" followed by SUFFIX, with ID escaped; the caller frees it, NULL: out of memory. */
char *client_job_path(const char *id, const char *suffix);
/* Packs DIR, uploads it unless the head has it, and gives its gcs:// address (the caller frees). */
raia_status client_upload(struct client *client, const char *dir, const char *const *excludes,
                          size_t nexcludes, char **uri);
/* Writes a job's log to FD as it grows, until the job has ended; FOLLOW false: what is there now;
 * FD -1: only waits for the end. */
raia_status client_tail(struct client *client, const char *id, bool follow, int fd);

#endif
