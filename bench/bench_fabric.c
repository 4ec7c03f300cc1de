/* What waiting and moving cost: barriers of a node, counters, and the wire between two simulated
 * nodes.
 *
 *   bench_fabric barrier [RANKS...]     µs a barrier
 */
#include "../tests/fabric/ranks.h"

enum { ROUNDS = 20000, WARM = 200 };

static void barrier_rank(struct rank_env *env)
{
    struct node *node;
    CHECK_OK(node_open(&node, env->control, &env->world, 30));
    for (int i = 0; i < WARM; i++)
        CHECK_OK(node_barrier(node));
    double begin = clock_s();
    for (int i = 0; i < ROUNDS; i++)
        CHECK_OK(node_barrier(node));
    double end = clock_s();
    if (env->world.rank == 0)
        printf("barrier, %d ranks: %.2f us\n", env->world.size, (end - begin) / ROUNDS * 1e6);
    begin = clock_s();
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        node_post(node, 0, i);
        CHECK_OK(node_wait_all(node, 0, i));
    }
    end = clock_s();
    if (env->world.rank == 0)
        printf("post + wait_all, %d ranks: %.2f us\n", env->world.size,
               (end - begin) / ROUNDS * 1e6);
    CHECK_OK(node_barrier(node));
    node_close(node);
}

int main(int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        ranks_run(atoi(argv[i]), 1, barrier_rank, NULL);
    return 0;
}
