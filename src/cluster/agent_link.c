/* The agent's connection to its head: hello, welcome, and again whenever it ends. */
#include "cluster/agent_priv.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_connected(const struct agent *agent)
{
    return agent->ws != NULL && agent->welcomed;
}

void agent_send(struct agent *agent, json_t *message)
{
    link_send(&agent->link, message);
}

/* ---- hello and welcome ---- */

static void say_hello(struct agent *agent)
{
    json_t *hello =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:i, s:s, s:I}", "node", agent->id,
                  "name", agent->name, "host", agent->host, "address", agent->address, "base",
                  agent->config.address, "workers", agent->workers, "gpus", agent->gpus, "cpus",
                  (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory",
                  (json_int_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE), "pid", (int)getpid(),
                  "session", agent->session, "seen", (json_int_t)agent->link.seen_seq);
    char *text = hello != NULL ? json_dumps(hello, JSON_COMPACT) : NULL;
    if (text == NULL || ws_send(agent->ws, true, text, strlen(text)) != RAIA_OK)
        ws_drop(agent->ws);
    free(text);
    json_decref(hello);
}

static void say_ready(struct agent *agent)
{
    if (agent->ready)
        return;
    agent->ready = true;
    log_info("node %s: joined %s with %d workers and %d GPUs", agent->name, agent->config.address,
             agent->workers, agent->gpus);
    daemon_ready(agent->config.ready_fd, "ready %s", agent->config.address);
    agent->config.ready_fd = -1;
}

static raia_status read_welcome(struct agent *agent, const json_t *welcome)
{
    const char *session;
    int64_t seen;
    bool known;
    RAIA_TRY(json_get_string(welcome, "welcome", "session", &session));
    RAIA_TRY(json_get_bool(welcome, "welcome", "known", &known));
    RAIA_TRY(json_get_i64(welcome, "welcome", "seen", 0, INT64_MAX, &seen));
    if (!known) {
        if (agent->session[0] != '\0')
            log_warn("the head has started anew: jobs of before are ended");
        agent_jobs_end(agent, SIGTERM, HEADLESS_GRACE, true);
        link_reset(&agent->link);
    }
    snprintf(agent->session, sizeof agent->session, "%s", session);
    agent->welcomed = true;
    agent->headless = false;
    link_attach(&agent->link, agent->ws, (uint64_t)seen);
    say_ready(agent);
    return RAIA_OK;
}

static raia_status greet(struct agent *agent, const void *data, size_t len)
{
    json_t *welcome;
    RAIA_TRY(json_parse(data, len, LIMIT_MESSAGE, "welcome", &welcome));
    raia_status status = read_welcome(agent, welcome);
    json_decref(welcome);
    return status;
}

static void on_frame(void *self, bool text, const void *data, size_t len)
{
    struct agent *agent = self;
    raia_status status =
        agent->welcomed ? link_receive(&agent->link, text, data, len) : greet(agent, data, len);
    if (status != RAIA_OK) {
        log_error("the head: %s", raia_error());
        ws_drop(agent->ws);
    }
}

static void on_closed(void *self, int code)
{
    struct agent *agent = self;
    if (agent->welcomed && !agent->stopping)
        log_warn("the connection to the head ended (%d)", code);
    agent->ws = NULL;
    agent->welcomed = false;
    agent->gone_ns = clock_ns();
    agent->redial_ns = deadline_in_ms(REDIAL_MS);
    link_detach(&agent->link);
    if (agent->stopping && agent->jobs == NULL)
        uv_stop(&agent->loop);
}

static const struct ws_events events = { .message = on_frame, .closed = on_closed };

/* ---- dialling ---- */

static void dial(uv_work_t *work)
{
    struct agent *agent = work->data;
    agent->dial_status = dial_websocket(&agent->dialled, agent->config.address,
                                        "/api/raia/v1/agents", agent->config.token);
    if (agent->dial_status != RAIA_OK)
        snprintf(agent->dial_error, sizeof agent->dial_error, "%s", raia_error());
}

static raia_status take_over(struct agent *agent)
{
    struct ws_config config = { .loop = &agent->loop,
                                .fd = agent->dialled.fd,
                                .client = true,
                                .curl = agent->dialled.curl,
                                .extra = agent->dialled.extra,
                                .extra_len = agent->dialled.extra_len,
                                .max_message = LIMIT_MESSAGE,
                                .beat_ms = BEAT_MS,
                                .silence_ms = SILENCE_MS,
                                .events = &events,
                                .self = agent };
    RAIA_TRY(ws_open(&agent->ws, &config));
    agent->dialled.curl = NULL; /* the connection is the ws's now */
    const char *own = agent->config.node_address;
    snprintf(agent->address, sizeof agent->address, "%s", own != NULL ? own : agent->dialled.local);
    say_hello(agent);
    return RAIA_OK;
}

static void after_dial(uv_work_t *work, int code)
{
    struct agent *agent = work->data;
    raia_status status = code < 0 ? RAIA_ESTOPPED : agent->dial_status;
    agent->busy = false;
    agent->redial_ns = deadline_in_ms(REDIAL_MS);
    if (status == RAIA_OK && !agent->stopping) {
        status = take_over(agent);
        if (status != RAIA_OK)
            snprintf(agent->dial_error, sizeof agent->dial_error, "%s", raia_error());
    }
    dialled_release(&agent->dialled);
    if (status == RAIA_OK || agent->ready || agent->stopping)
        return;
    bool late = clock_ns() - agent->started_ns > FIRST_DIAL_S * UINT64_C(1000000000);
    if (status == RAIA_EREFUSED)
        agent_fail(agent,
                   fail(status, "the head at %s refuses this node: %s (is RAIA_TOKEN the head's?)",
                        agent->config.address, agent->dial_error));
    else if (late)
        agent_fail(agent, fail(status, "no head answers at %s: %s", agent->config.address,
                               agent->dial_error));
}

void agent_dial(struct agent *agent)
{
    agent->busy = true;
    agent->dialling.data = agent;
    if (uv_queue_work(&agent->loop, &agent->dialling, dial, after_dial) != 0)
        agent->busy = false;
}

void agent_link_tick(struct agent *agent)
{
    uint64_t now = clock_ns();
    if (agent->ws == NULL && !agent->busy && !agent->stopping && now >= agent->redial_ns)
        agent_dial(agent);
    bool away = !is_connected(agent) && agent->ready &&
                now - agent->gone_ns > HEADLESS_MS * UINT64_C(1000000);
    if (away && !agent->headless) {
        agent->headless = true;
        if (agent->jobs != NULL)
            log_warn("the head at %s is away: its jobs are ended", agent->config.address);
        agent_jobs_end(agent, SIGTERM, HEADLESS_GRACE, false);
    }
}

void agent_link_close(struct agent *agent)
{
    if (agent->ws != NULL)
        ws_close(agent->ws, WS_GOING_AWAY);
    else if (!agent->busy)
        uv_stop(&agent->loop);
}
