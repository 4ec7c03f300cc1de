#include "launch/launch_priv.h"

#include <stdlib.h>
#include <string.h>

/* Bounds of what an environment may claim. */
enum { MAX_RANKS = 1 << 20, MAX_NODES = 1 << 16 };

bool launch_is_rank(void)
{
    return env_get("RAIA_RANK", NULL) != NULL;
}

static raia_status need_i64(const char *name, int64_t min, int64_t max, int *out)
{
    int64_t value;
    if (env_get(name, NULL) == NULL)
        return fail(RAIA_EINVAL,
                    "%s is not set, though RAIA_RANK is: a rank is started by raia, "
                    "which sets both",
                    name);
    RAIA_TRY(env_i64(name, 0, min, max, &value));
    *out = (int)value;
    return RAIA_OK;
}

/* "0,4,8" into FIRST, which ends with the world size. */
static raia_status parse_first(const char *text, int size, int **out, int *nodes)
{
    int count = 1;
    for (const char *p = text; *p != '\0'; p++)
        count += *p == ',';
    if (count < 2 || count > MAX_NODES + 1)
        return fail(RAIA_EINVAL, "RAIA_NODE_FIRST: '%.100s' does not list the nodes", text);
    int *first;
    RAIA_TRY(MEM_NEW(&first, (size_t)count));
    const char *p = text;
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        char *end;
        long value = strtol(p, &end, 10);
        good = end != p && *end == (i + 1 < count ? ',' : '\0') && value >= 0 && value <= size &&
               (i == 0 ? value == 0 : value > first[i - 1]);
        first[i] = (int)value;
        p = end + 1;
    }
    if (!good || first[count - 1] != size) {
        free(first);
        return fail(RAIA_EINVAL, "RAIA_NODE_FIRST: '%.100s' is not a growing list from 0 to %d",
                    text, size);
    }
    *out = first;
    *nodes = count - 1;
    return RAIA_OK;
}

raia_status launch_world(struct world *out)
{
    struct world w = { 0 };
    RAIA_TRY(need_i64("RAIA_WORLD_SIZE", 1, MAX_RANKS, &w.size));
    RAIA_TRY(need_i64("RAIA_RANK", 0, w.size - 1, &w.rank));
    const char *text = env_get("RAIA_NODE_FIRST", NULL);
    if (text == NULL)
        return fail(RAIA_EINVAL, "RAIA_NODE_FIRST is not set, though RAIA_RANK is");
    RAIA_TRY(parse_first(text, w.size, &w.node_first, &w.nodes));
    w.node = world_node_of(&w, w.rank);
    w.local_rank = w.rank - w.node_first[w.node];
    w.local_size = w.node_first[w.node + 1] - w.node_first[w.node];
    *out = w;
    return RAIA_OK;
}

void launch_world_release(struct world *world)
{
    free(world->node_first);
    world->node_first = NULL;
}

raia_status launch_place(const struct world *world, int rank, char out[][LAUNCH_PLACE_LEN])
{
    const int *node_first = world->node_first;
    int nodes = world->nodes, node = world_node_of(world, rank);
    snprintf(out[0], LAUNCH_PLACE_LEN, "RAIA_RANK=%d", rank);
    snprintf(out[1], LAUNCH_PLACE_LEN, "RAIA_WORLD_SIZE=%d", node_first[nodes]);
    snprintf(out[2], LAUNCH_PLACE_LEN, "RAIA_LOCAL_RANK=%d", rank - node_first[node]);
    snprintf(out[3], LAUNCH_PLACE_LEN, "RAIA_NODE=%d", node);
    int at = snprintf(out[4], LAUNCH_PLACE_LEN, "RAIA_NODE_FIRST=0");
    for (int i = 1; i <= nodes; i++) {
        at += snprintf(out[4] + at, (size_t)(LAUNCH_PLACE_LEN - at), ",%d", node_first[i]);
        if (at >= LAUNCH_PLACE_LEN)
            return fail(RAIA_EUNSUPPORTED, "%d nodes are more than this launcher can name", nodes);
    }
    return RAIA_OK;
}
