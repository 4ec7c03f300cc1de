/* The verdict as people read it. */
#include "fabric/evidence_priv.h"

#include <string.h>

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static const char *bytes_of(const json_t *object, const char *key, char out[16])
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return str_bytes(out, value > 0 ? (uint64_t)value : 0);
}

/* "lo", or "eth0 of 0, eth0 of 1" where the nodes have their own. */
static void print_interfaces(const json_t *pair, char *out, size_t room)
{
    const json_t *list = json_object_get(pair, "interfaces");
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < json_array_size(list) && at + 1 < room; i++) {
        const json_t *item = json_array_get(list, i);
        const char *name = text_of(item, json_object_get(item, "name") != NULL ? "name" : "device");
        int node = (int)json_integer_value(json_object_get(item, "node"));
        const char *comma = i > 0 ? ", " : "";
        int n = json_is_true(json_object_get(item, "shared"))
                    ? snprintf(out + at, room - at, "%s%s", comma, name)
                    : snprintf(out + at, room - at, "%s%s of %d", comma, name, node);
        at += n > 0 ? (size_t)n : 0;
    }
}

static raia_status print_pair(const json_t *pair, struct buf *out)
{
    char nodes[32], interfaces[256], sent[16], carried[16], counted[16], tolerance[16];
    const json_t *ends = json_object_get(pair, "nodes");
    snprintf(nodes, sizeof nodes, "%d - %d", (int)json_integer_value(json_array_get(ends, 0)),
             (int)json_integer_value(json_array_get(ends, 1)));
    print_interfaces(pair, interfaces, sizeof interfaces);
    return buf_printf(out, "  %-9s %-12s %10s %10s %10s %10s  %-12s  %s\n", nodes,
                      text_of(pair, "provider"), bytes_of(pair, "sent", sent),
                      bytes_of(pair, "carried", carried), bytes_of(pair, "counted", counted),
                      bytes_of(pair, "tolerance", tolerance), text_of(pair, "status"), interfaces);
}

raia_status evidence_table(const json_t *verdict, struct buf *out)
{
    const json_t *pairs = json_object_get(verdict, "pairs");
    RAIA_TRY(buf_printf(out, "fabric %s: %s (%s)\n", text_of(verdict, "fabric"),
                        text_of(verdict, "status"), text_of(verdict, "reason")));
    if (json_array_size(pairs) > 0)
        RAIA_TRY(buf_printf(out, "  %-9s %-12s %10s %10s %10s %10s  %-12s  %s\n", "nodes",
                            "provider", "sent", "in all", "counted", "tolerance", "status",
                            "interfaces"));
    for (size_t i = 0; i < json_array_size(pairs); i++)
        RAIA_TRY(print_pair(json_array_get(pairs, i), out));
    return RAIA_OK;
}
