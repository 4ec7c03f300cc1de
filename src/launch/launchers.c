#include "launch/launch_priv.h"

#include <stdlib.h>
#include <string.h>

static const struct launcher *const launchers[] = { &launch_head, &launch_local };

static const struct launcher *choose(void)
{
    for (size_t i = 0; i + 1 < sizeof launchers / sizeof launchers[0]; i++)
        if (launchers[i]->applies())
            return launchers[i];
    return &launch_local; /* the last row needs nothing */
}

raia_status launch_start(struct launch **out, const struct launch_request *request, int *world_size,
                         int *nodes)
{
    struct launch *launch;
    RAIA_TRY(MEM_NEW(&launch, 1));
    launch->launcher = choose();
    raia_status status = launch->launcher->start(request, &launch->impl, world_size, nodes);
    if (status != RAIA_OK) {
        free(launch);
        return status;
    }
    *out = launch;
    return RAIA_OK;
}

raia_status launch_wait(struct launch *launch, uint64_t deadline, struct launch_exit *out)
{
    *out = (struct launch_exit){ .rank = -1, .node = -1, .code = -1 };
    return launch->launcher->wait(launch->impl, deadline, out);
}

raia_status launch_stop(struct launch *launch, unsigned grace_ms)
{
    return launch->launcher->stop(launch->impl, grace_ms);
}

raia_status launch_tell(struct launch *launch, const json_t *event)
{
    return launch->launcher->tell != NULL ? launch->launcher->tell(launch->impl, event) : RAIA_OK;
}

void launch_free(struct launch *launch)
{
    if (launch == NULL)
        return;
    launch->launcher->free(launch->impl);
    free(launch);
}

raia_status launch_control_host(char *listen_host, char *reach_host)
{
    snprintf(listen_host, 256, "127.0.0.1");
    snprintf(reach_host, 256, "127.0.0.1");
    if (choose() == &launch_local)
        return RAIA_OK;
    const char *known = env_get("RAIA_NODE_ADDRESS", NULL);
    if (known != NULL) {
        snprintf(reach_host, 256, "%s", known);
    } else {
        const char *address = env_get("RAIA_ADDRESS", "");
        char host[256];
        uint16_t port;
        const char *bare = strstr(address, "://");
        RAIA_TRY(net_split(bare != NULL ? bare + 3 : address, host, &port));
        RAIA_TRY(net_local_towards(host, reach_host));
    }
    if (!str_starts(reach_host, "127.") && strcmp(reach_host, "::1") != 0)
        snprintf(listen_host, 256, "%s", strchr(reach_host, ':') != NULL ? "::" : "0.0.0.0");
    return RAIA_OK;
}

raia_status launch_control_address(const struct launch_request *request, char *out, size_t size)
{
    char listen_host[256], reach_host[256];
    RAIA_TRY(launch_control_host(listen_host, reach_host));
    bool v6 = strchr(reach_host, ':') != NULL;
    snprintf(out, size, "%s%s%s:%u", v6 ? "[" : "", reach_host, v6 ? "]" : "",
             request->control_port);
    return RAIA_OK;
}
