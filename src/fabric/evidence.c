/* What a rank can say of the wire, and the check before step 0. */
#include "fabric/wire_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEVICE_LIFESPAN_MS = 20 };

raia_status wire_place(struct wire_place *out)
{
    char *boot = NULL;
    size_t len;
    ssize_t n = readlink("/proc/self/ns/net", out->netns, sizeof out->netns - 1);
    out->netns[n > 0 ? n : 0] = '\0';
    RAIA_TRY(file_read("/proc/sys/kernel/random/boot_id", sizeof out->boot, &boot, &len));
    snprintf(out->boot, sizeof out->boot, "%.*s", (int)strcspn(boot, "\n"), boot);
    free(boot);
    return RAIA_OK;
}

static json_t *by_node(const struct wire *wire, const uint64_t *values)
{
    json_t *object = json_object();
    for (int node = 0; node < wire->world.nodes; node++) {
        char key[16];
        snprintf(key, sizeof key, "%d", node);
        if (node != wire->world.node)
            json_object_set_new(object, key, json_integer((json_int_t)values[node]));
    }
    return object;
}

/* The device where libfabric names one (EFA, verbs), the interface where it does not. */
static json_t *endpoints_of(const struct wire *wire)
{
    const char *device = wire_device(wire);
    if (wire->provider == NULL)
        return json_array();
    if (device != NULL)
        return json_pack("[{s:s}]", "device", device);
    return json_pack("[{s:s, s:s}]", "interface", wire->interface.name, "address",
                     wire->interface.address);
}

/* On the loopback both directions leave through the one interface. */
static raia_status control_of(const struct wire *wire, json_t **out)
{
    struct control_traffic traffic;
    char name[32];
    RAIA_TRY(control_traffic(wire->control, &traffic));
    wire_interface_of(traffic.address, name);
    uint64_t bytes = traffic.sent + (traffic.loopback ? traffic.received : 0);
    *out = json_pack("{s:s, s:I}", "interface", traffic.loopback ? "lo" : name, "bytes",
                     (json_int_t)bytes);
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

static raia_status add_counts(const struct wire *wire, const char *root, json_t *evidence)
{
    json_t *control, *interfaces, *devices;
    char version[48];
    if (wire->provider == NULL)
        return RAIA_OK;
    RAIA_TRY(control_of(wire, &control));
    json_object_set_new(evidence, "control", control);
    RAIA_TRY(counters_interfaces(root, &interfaces));
    json_object_set_new(evidence, "interfaces", interfaces);
    /* The kernel reads a device's counters anew only every 10 ms. */
    if (!wire->provider->by_address)
        clock_sleep_ms(DEVICE_LIFESPAN_MS);
    RAIA_TRY(counters_devices(root, &devices));
    json_object_set_new(evidence, "efa", devices);
    uint32_t number = wire->ep.lib->version();
    snprintf(version, sizeof version, "libfabric %u.%u", FI_MAJOR(number), FI_MINOR(number));
    json_object_set_new(evidence, "version", json_string(version));
    return RAIA_OK;
}

raia_status evidence_take(struct wire *wire, const struct world *world, const char *root,
                          json_t **out)
{
    char host[256] = "";
    struct wire_place place;
    gethostname(host, sizeof host - 1);
    RAIA_TRY(wire_place(&place));
    json_t *evidence = json_pack(
        "{s:i, s:i, s:s, s:s, s:s, s:f, s:s, s:s, s:o, s:o, s:o, s:o}", "rank", world->rank, "node",
        world->node, "host", host, "netns", place.netns, "boot_id", place.boot, "seconds",
        clock_s(), "fabric", wire->provider != NULL ? wire->provider->family : "shm", "provider",
        wire_provider(wire), "endpoints", endpoints_of(wire), "sent", by_node(wire, wire->sent),
        "received", by_node(wire, wire->received), "messages", by_node(wire, wire->message_count));
    if (evidence == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status = add_counts(wire, root != NULL ? root : "", evidence);
    if (status != RAIA_OK)
        json_decref(evidence);
    else
        *out = evidence;
    return status;
}

raia_status evidence_precheck(struct wire *wire, const char *require)
{
    if (require == NULL || strcmp(require, wire_provider(wire)) == 0 ||
        (wire->provider != NULL && strcmp(require, wire->provider->family) == 0))
        return RAIA_OK;
    if (wire->provider == NULL)
        return fail(RAIA_EFABRIC,
                    "fabric %s is required, and all ranks are on one node, which meets in shared "
                    "memory: run on more than one node, or require shm",
                    require);
    return fail(RAIA_EFABRIC,
                "fabric %s is required, and the endpoints opened %s (libfabric's %s on %s): see "
                "that every node has %s, or require %s",
                require, wire->provider->family, wire_provider(wire), wire->interface.name, require,
                wire->provider->family);
}
