#include "fabric/node_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a word's futex is its low half");

/* The processors that the local ranks may use, all together: each may be bound to its own. */
static int count_cores(const struct node *node)
{
    cpu_set_t all;
    CPU_ZERO(&all);
    for (int who = 0; who < node->size; who++)
        CPU_OR(&all, &all, &node->board->members[who].cpus);
    return CPU_COUNT(&all);
}

static raia_status compare_cores(struct node *node)
{
    cpu_set_t *mine = &node->board->members[node->rank].cpus;
    if (sched_getaffinity(0, sizeof *mine, mine) < 0)
        CPU_ZERO(mine); /* more processors than the set holds: counted as none, so no spinning */
    RAIA_TRY(node_barrier(node));
    node->spin = node->size <= count_cores(node);
    return RAIA_OK;
}

static raia_status open_links(struct node *node)
{
    RAIA_TRY(MEM_NEW(&node->links, (size_t)node->size));
    for (int i = 0; i < node->size; i++)
        node->links[i] = -1;
    RAIA_TRY(node_meet(node));
    node->counters = (struct node_word *)&node->board->members[node->size];
    return compare_cores(node);
}

void node_timeout(struct node *node, double timeout_s)
{
    node->timeout_ns = timeout_s > 0 ? (uint64_t)(timeout_s * 1e9) : 0;
}

raia_status node_open(struct node **out, struct control *control, const struct world *world,
                      double timeout_s)
{
    struct node *node;
    RAIA_TRY(MEM_NEW(&node, 1));
    *node = (struct node){ .control = control,
                           .node = world->node,
                           .rank = world->local_rank,
                           .size = world->local_size,
                           .first = world->rank - world->local_rank };
    node_timeout(node, timeout_s);
    raia_status status = open_links(node);
    if (status != RAIA_OK) {
        node_close(node);
        return status;
    }
    *out = node;
    return RAIA_OK;
}

void node_close(struct node *node)
{
    if (node == NULL)
        return;
    for (int i = 0; node->links != NULL && i < node->size; i++)
        if (node->links[i] >= 0)
            close(node->links[i]);
    free(node->links);
    node_unmap_all(node);
    free(node);
}
