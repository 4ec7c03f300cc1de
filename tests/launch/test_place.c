#include "check.h"
#include "launch/launch_priv.h"

static void place(int *first, int nodes, int rank)
{
    const struct world world = { .nodes = nodes, .node_first = first };
    static char vars[LAUNCH_PLACE_VARS][LAUNCH_PLACE_LEN];
    CHECK_OK(launch_place(&world, rank, vars));
    for (int v = 0; v < LAUNCH_PLACE_VARS; v++)
        putenv(vars[v]);
}

TEST(a_rank_finds_the_place_that_its_launcher_gave_it)
{
    int first[] = { 0, 3, 4, 9 };
    for (int rank = 0; rank < 9; rank++) {
        struct world w;
        place(first, 3, rank);
        CHECK(launch_is_rank());
        CHECK_OK(launch_world(&w));
        int node = rank < 3 ? 0 : rank < 4 ? 1 : 2;
        CHECK_INT(w.rank, rank);
        CHECK_INT(w.size, 9);
        CHECK_INT(w.node, node);
        CHECK_INT(w.nodes, 3);
        CHECK_INT(w.local_rank, rank - first[node]);
        CHECK_INT(w.local_size, first[node + 1] - first[node]);
        launch_world_release(&w);
    }
}

TEST(a_place_that_contradicts_itself_is_refused_by_name)
{
    struct world w;
    int first[] = { 0, 2 };
    place(first, 1, 1);
    static const char *const bad[] = { "0", "0,3", "1,2", "0,2,2", "0,x", "0,,2", "0,2," };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        setenv("RAIA_NODE_FIRST", bad[i], 1);
        CHECK_ERROR(launch_world(&w), RAIA_EINVAL, "RAIA_NODE_FIRST");
    }
    unsetenv("RAIA_WORLD_SIZE");
    CHECK_ERROR(launch_world(&w), RAIA_EINVAL, "RAIA_WORLD_SIZE");
}

TEST_MAIN
