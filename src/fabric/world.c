#include "fabric/fabric.h"

int world_node_of(const struct world *world, int rank)
{
    int low = 0, high = world->nodes - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (world->node_first[middle] <= rank)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}
