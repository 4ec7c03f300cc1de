/* The agent: a node of a cluster. It offers this machine's workers and GPUs to a head and runs what
 * the head places here. */
#include "cluster/agent_priv.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void agent_fail(struct agent *agent, raia_status status)
{
    agent->status = status;
    snprintf(agent->error, sizeof agent->error, "%s", raia_error());
    uv_stop(&agent->loop);
}

/* ---- this machine ---- */

static int count_gpus(void)
{
    DIR *dir = opendir("/dev");
    const struct dirent *entry;
    int count = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        const char *digits = entry->d_name + strlen("nvidia");
        if (str_starts(entry->d_name, "nvidia") && isdigit((unsigned char)digits[0]))
            count += digits[strspn(digits, "0123456789")] == '\0';
    }
    if (dir != NULL)
        closedir(dir);
    return count;
}

static raia_status describe(struct agent *agent)
{
    const struct agent_config *config = &agent->config;
    agent->gpus = config->gpus >= 0 ? config->gpus : count_gpus();
    agent->workers = config->workers >= 0 ? config->workers : agent->gpus > 0 ? agent->gpus : 1;
    if (gethostname(agent->host, sizeof agent->host - 1) < 0)
        snprintf(agent->host, sizeof agent->host, "localhost");
    const char *name = config->name != NULL ? config->name : agent->host;
    if (!path_is_component(name) || strlen(name) > 63)
        return fail(RAIA_EINVAL, "'%s' is no name for a node: at most 63 letters, digits, . _ -",
                    name);
    snprintf(agent->name, sizeof agent->name, "%s", name);
    snprintf(agent->daemon, sizeof agent->daemon, "agent-%s", name);
    return str_random_hex(agent->id, 16);
}

/* Two nodes of one name could not be told apart, and would share their folder. */
static raia_status check_name(const struct agent *agent)
{
    struct daemons daemons;
    raia_status status = daemons_read(agent->config.state, &daemons);
    for (size_t i = 0; status == RAIA_OK && i < daemons.count; i++)
        if (strcmp(daemons.rows[i].name, agent->daemon) == 0 && daemons.rows[i].pid != getpid())
            status = fail(RAIA_EREFUSED,
                          "node %s runs here already (pid %d): give another --name, or run `raia "
                          "stop` first",
                          agent->name, daemons.rows[i].pid);
    free(daemons.rows);
    return status;
}

static raia_status make_folder(struct agent *agent)
{
    agent->dir = path_join(agent->config.state, agent->daemon);
    if (agent->dir == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    if (dir_exists(agent->dir)) /* of an agent that was killed */
        RAIA_TRY(dir_remove(agent->dir));
    return dir_make(agent->dir, 0700);
}

/* ---- the end ---- */

static void on_signal(uv_signal_t *handle, int number)
{
    (void)number;
    struct agent *agent = handle->data;
    bool again = agent->stopping;
    agent->stopping = true;
    if (!again)
        log_info("stopping");
    agent_jobs_end(agent, SIGTERM, again ? 0 : STOP_GRACE_MS, false);
}

/* Once no job is left and the head has been told, or takes too long to listen. */
static void leave_when_alone(struct agent *agent)
{
    if (agent->jobs != NULL || agent->busy)
        return;
    if (link_settled(&agent->link) || !agent->welcomed || ++agent->leaving > LEAVE_TICKS)
        agent_link_close(agent);
}

/* ---- the loop ---- */

static void on_tick(uv_timer_t *tick)
{
    struct agent *agent = tick->data;
    agent_link_tick(agent);
    if (agent->stopping)
        leave_when_alone(agent);
}

static void on_message(void *self, json_t *message)
{
    agent_job_message(self, message);
}

static void on_level(void *self, bool high)
{
    agent_jobs_hold(self, high);
}

static void start_loop(struct agent *agent)
{
    uv_timer_init(&agent->loop, &agent->tick);
    uv_signal_init(&agent->loop, &agent->term);
    uv_signal_init(&agent->loop, &agent->interrupt);
    agent->tick.data = agent->term.data = agent->interrupt.data = agent;
    uv_timer_start(&agent->tick, on_tick, AGENT_TICK_MS, AGENT_TICK_MS);
    uv_signal_start(&agent->term, on_signal, SIGTERM);
    uv_signal_start(&agent->interrupt, on_signal, SIGINT);
    agent->link.message = on_message;
    agent->link.level = on_level;
    agent->link.self = agent;
    link_init(&agent->link, &agent->loop);
}

static raia_status open_agent(struct agent *agent)
{
    uv_loop_init(&agent->loop);
    RAIA_TRY(describe(agent));
    RAIA_TRY(check_name(agent));
    RAIA_TRY(make_folder(agent));
    RAIA_TRY(daemon_enter(agent->config.state, agent->daemon, agent->config.address));
    start_loop(agent);
    agent_dial(agent);
    return RAIA_OK;
}

raia_status agent_run(const struct agent_config *config)
{
    static struct agent agent; /* one a process */
    agent.config = *config;
    agent.started_ns = clock_ns();
    signal(SIGPIPE, SIG_IGN);
    raia_status status = open_agent(&agent);
    log_set_name(agent.daemon);
    if (status == RAIA_OK) {
        uv_run(&agent.loop, UV_RUN_DEFAULT);
        daemon_leave(config->state, agent.daemon);
        if (dir_remove(agent.dir) != RAIA_OK)
            log_warn("%s", raia_error());
        status = agent.status != RAIA_OK ? fail(agent.status, "%s", agent.error) : RAIA_OK;
    }
    if (status != RAIA_OK)
        daemon_ready(agent.config.ready_fd, "error %s", raia_error());
    free(agent.dir);
    return status;
}
