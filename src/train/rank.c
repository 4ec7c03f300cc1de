/* A rank's life: join, train, leave. */
#include "train/train_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static raia_status send_evidence(raia_context *c, const char *when)
{
    json_t *evidence;
    RAIA_TRY(evidence_take(c->wire, &c->world, env_get("RAIA_COUNTER_ROOT", NULL), &evidence));
    json_t *event = json_pack("{s:s, s:o}", "event", when, "evidence", evidence);
    if (event == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = control_event(c->control, event);
    json_decref(event);
    return status;
}

static raia_status open_device(raia_context *c)
{
    if (c->settings->scaling.use_gpu == RAIA_GPU)
        return fail(RAIA_EUNSUPPORTED,
                    "a GPU was asked for, and this build trains on CPUs only: leave it out");
    int64_t threads;
    int share = device_cores() / c->world.local_size;
    RAIA_TRY(env_i64("RAIA_THREADS", share > 0 ? share : 1, 1, 1024, &threads));
    return device_open(&c->device, "cpu", (int)threads);
}

static raia_status join(raia_context *c)
{
    double timeout_s = c->settings->run.timeout_s;
    const char *address = env_get("RAIA_CONTROL", NULL);
    RAIA_TRY(launch_world(&c->world));
    if (address == NULL)
        return fail(RAIA_EINVAL, "RAIA_CONTROL is not set, though RAIA_RANK is: a rank is started "
                                 "by raia, which sets both");
    char name[32];
    snprintf(name, sizeof name, "rank %d", c->world.rank);
    log_set_name(name);
    RAIA_TRY(control_connect(&c->control, address, env_get("RAIA_CONTROL_TOKEN", ""), c->world.rank,
                             deadline_in_ms((uint64_t)(timeout_s * 1000))));
    if (c->world.size > 1)
        RAIA_TRY(node_open(&c->node, c->control, &c->world, timeout_s));
    RAIA_TRY(wire_open(&c->wire, c->control, &c->world, c->settings->run.fabric, timeout_s));
    RAIA_TRY(evidence_precheck(c->wire, c->settings->run.require_fabric));
    RAIA_TRY(comm_open(&c->comm, &c->world, c->control, c->node, c->wire, 0));
    raia_comm_timeout(c->comm, timeout_s);
    RAIA_TRY(open_device(c));
    RAIA_TRY(raia_barrier(c->comm));
    RAIA_TRY(send_evidence(c, "before"));
    /* No rank sends before every rank has counted: what follows is then in all differences. */
    return raia_barrier(c->comm);
}

static raia_status leave(raia_context *c)
{
    RAIA_TRY(raia_barrier(c->comm));
    RAIA_TRY(send_evidence(c, "after"));
    return raia_barrier(c->comm);
}

static void release(raia_context *c)
{
    while (c->optimizers != NULL) {
        raia_optimizer *next = c->optimizers->next;
        free(c->optimizers);
        c->optimizers = next;
    }
    while (c->models != NULL) {
        raia_model *next = c->models->next;
        model_free(c->models);
        c->models = next;
    }
    while (c->datas != NULL) {
        raia_data *next = c->datas->next;
        data_free(c->datas);
        c->datas = next;
    }
    if (c->device != NULL)
        device_close(c->device);
    if (c->comm != NULL)
        comm_close(c->comm);
    if (c->wire != NULL)
        wire_close(c->wire);
    if (c->node != NULL)
        node_close(c->node);
}

/* The driver tells people; without it this rank must. */
static void tell(raia_context *c, raia_status status, const char *text)
{
    json_t *event =
        json_pack("{s:s, s:i, s:s}", "event", "failed", "status", (int)status, "text", text);
    if (c->control == NULL || event == NULL || control_event(c->control, event) != RAIA_OK)
        fprintf(stderr, "raia: %s\n", text);
    json_decref(event);
}

raia_status rank_run(raia_train_function *train, void *arg, const struct settings *settings)
{
    raia_context c = { .settings = settings };
    raia_status status = join(&c);
    if (status == RAIA_OK)
        status = train(&c, arg);
    if (status == RAIA_OK)
        status = leave(&c);
    if (status != RAIA_OK) {
        char text[2048];
        snprintf(text, sizeof text, "%s", raia_error());
        if (text[0] == '\0')
            snprintf(text, sizeof text, "the train function failed: %s", raia_status_text(status));
        tell(&c, status, text);
    }
    release(&c);
    if (c.control != NULL)
        control_close(c.control, status == RAIA_OK);
    launch_world_release(&c.world);
    return status;
}

int raia_rank(const raia_context *context)
{
    return context->world.rank;
}

int raia_world_size(const raia_context *context)
{
    return context->world.size;
}

int raia_local_rank(const raia_context *context)
{
    return context->world.local_rank;
}

int raia_local_world_size(const raia_context *context)
{
    return context->world.local_size;
}

int raia_node_rank(const raia_context *context)
{
    return context->world.node;
}

int raia_num_nodes(const raia_context *context)
{
    return context->world.nodes;
}

const char *raia_device(const raia_context *context)
{
    (void)context;
    return "cpu";
}

raia_comm *raia_context_comm(raia_context *context)
{
    return context->comm;
}
