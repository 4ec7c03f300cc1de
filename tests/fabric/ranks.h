/* ranks: runs a function as each rank of a small world, one process a rank, on simulated nodes of
 * this machine, with a driver's control channel in the test's own process. */
#ifndef RAIA_TESTS_FABRIC_RANKS_H
#define RAIA_TESTS_FABRIC_RANKS_H

#include "check.h"
#include "fabric/fabric.h"

#include <pthread.h>
#include <unistd.h>

#define RANKS_TOKEN "0123456789abcdef"

struct rank_env {
    struct world world;
    struct control *control;
    char address[64];
    void *arg;
};
typedef void (*rank_fn)(struct rank_env *env);

struct ranks {
    int size, nodes;
    int per_node[16]; /* local sizes; filled evenly by ranks_start when all 0 */
    rank_fn run;
    void *arg;
    bool abort_on_loss; /* the driver tells the others when a rank is lost without goodbye */
    double limit_s;     /* ranks are killed after it; default 30 */
    int room;           /* ranks that the driver's server takes; default SIZE */
    /* filled in */
    pid_t pids[64];
    int codes[64]; /* exit code, or 128 + signal */
    int first[17];
    uint16_t port;
    struct control_server *server;
    pthread_mutex_t lock;
    int lost_clean[64], lost_unclean[64], events[64];
};

static inline void ranks_on_lost(void *self, int rank, bool clean)
{
    struct ranks *r = self;
    pthread_mutex_lock(&r->lock);
    (clean ? r->lost_clean : r->lost_unclean)[rank]++;
    struct control_server *server = r->server;
    pthread_mutex_unlock(&r->lock);
    char reason[64];
    snprintf(reason, sizeof reason, "rank %d was lost", rank);
    if (!clean && r->abort_on_loss && server != NULL)
        control_server_abort(server, reason);
}

static inline void ranks_on_event(void *self, int rank, const json_t *event)
{
    struct ranks *r = self;
    (void)event;
    pthread_mutex_lock(&r->lock);
    r->events[rank]++;
    pthread_mutex_unlock(&r->lock);
}

/* The child: connects, runs, leaves. Failing checks end it with code 1. */
static inline void ranks_child(struct ranks *r, int rank, int port_fd)
{
    alarm((unsigned)r->limit_s + 5);
    struct rank_env env = { .arg = r->arg };
    uint16_t port;
    if (read(port_fd, &port, sizeof port) != sizeof port)
        _exit(99);
    close(port_fd);
    env.world =
        (struct world){ .rank = rank, .size = r->size, .nodes = r->nodes, .node_first = r->first };
    env.world.node = world_node_of(&env.world, rank);
    env.world.local_rank = rank - r->first[env.world.node];
    env.world.local_size = r->first[env.world.node + 1] - r->first[env.world.node];
    snprintf(env.address, sizeof env.address, "127.0.0.1:%u", port);
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    log_set_name(name);
    CHECK_OK(control_connect(&env.control, env.address, RANKS_TOKEN, rank, deadline_in_ms(10000)));
    r->run(&env);
    control_close(env.control, true);
    fflush(stdout);
    exit(0); /* not _exit: leaks are looked for */
}

static inline void ranks_layout(struct ranks *r)
{
    if (r->nodes == 0)
        r->nodes = 1;
    if (r->room == 0)
        r->room = r->size;
    if (r->limit_s == 0)
        r->limit_s = 30;
    for (int n = 0; n < r->nodes; n++) {
        int even = r->size * (n + 1) / r->nodes - r->size * n / r->nodes;
        r->first[n + 1] = r->first[n] + (r->per_node[0] != 0 ? r->per_node[n] : even);
    }
    CHECK_INT(r->first[r->nodes], r->size);
}

static inline void ranks_start(struct ranks *r)
{
    ranks_layout(r);
    pthread_mutex_init(&r->lock, NULL);
    int ports[64];
    fflush(stdout);
    for (int i = 0; i < r->size; i++) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        r->pids[i] = fork();
        CHECK(r->pids[i] >= 0);
        if (r->pids[i] == 0) {
            close(ends[1]);
            ranks_child(r, i, ends[0]);
        }
        close(ends[0]);
        ports[i] = ends[1];
    }
    const struct control_callbacks callbacks = { r, ranks_on_event, NULL, ranks_on_lost };
    struct control_server *server;
    CHECK_OK(control_serve(&server, "127.0.0.1", &r->port, RANKS_TOKEN, r->room, &callbacks));
    pthread_mutex_lock(&r->lock);
    r->server = server;
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->size; i++) {
        CHECK(write(ports[i], &r->port, sizeof r->port) == sizeof r->port);
        close(ports[i]);
    }
}

/* Waits for all ranks and ends those that are still there after the limit. */
static inline void ranks_finish(struct ranks *r)
{
    uint64_t end = deadline_in_ms((uint64_t)(r->limit_s * 1000));
    for (int i = 0; i < r->size; i++) {
        int status = 0;
        while (waitpid(r->pids[i], &status, WNOHANG) == 0) {
            if (deadline_left_ms(end) == 0)
                kill(r->pids[i], SIGKILL);
            clock_sleep_ms(2);
        }
        r->codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    control_server_close(r->server);
}

static inline void ranks_check_ok(const struct ranks *r)
{
    for (int i = 0; i < r->size; i++)
        if (r->codes[i] != 0)
            CHECK_FAIL("rank %d ended with code %d", i, r->codes[i]);
}

/* SIZE ranks on NODES nodes run FN; all must succeed. */
static inline void ranks_run(int size, int nodes, rank_fn fn, void *arg)
{
    struct ranks r = { .size = size, .nodes = nodes, .run = fn, .arg = arg };
    ranks_start(&r);
    ranks_finish(&r);
    ranks_check_ok(&r);
}

#endif
