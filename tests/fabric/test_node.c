/* Ranks of one node: meeting, shared mappings, barriers, counters, and their failures. */
#include "ranks.h"

#include <sched.h>
#include <sys/stat.h>

static struct node *open_node(struct rank_env *env, double timeout_s)
{
    struct node *node;
    CHECK_OK(node_open(&node, env->control, &env->world, timeout_s));
    return node;
}

/* ---- mappings and barriers ---- */

static void write_and_read(struct rank_env *env)
{
    struct node *node = open_node(env, 20);
    int me = env->world.local_rank, size = env->world.local_size;
    uint32_t *board, *second;
    size_t bytes = (5U << 20) + 12345;
    CHECK_OK(node_map(node, bytes, "a test", (void **)&board));
    CHECK_OK(node_map(node, 64, "a small one", (void **)&second));
    size_t words = bytes / 4;
    for (size_t i = 0; i < words; i += 1009)
        CHECK_INT(board[i], 0);
    for (uint32_t round = 1; round <= 200; round++) {
        CHECK_OK(node_barrier(node));
        for (size_t i = (size_t)me; i < 4096; i += (size_t)size)
            board[i] = round * 100 + (uint32_t)me;
        board[words - 1 - (size_t)me] = round;
        CHECK_OK(node_barrier(node));
        for (size_t i = 0; i < 4096; i++)
            CHECK_INT(board[i], round * 100 + i % (uint32_t)size);
        for (int who = 0; who < size; who++)
            CHECK_INT(board[words - 1 - (size_t)who], round);
    }
    CHECK_OK(node_barrier(node));
    node_close(node);
}

TEST(barriers_order_writes_and_reads_of_a_shared_mapping_at_every_rank_count)
{
    for (int size = 1; size <= 8; size++)
        ranks_run(size, 1, write_and_read, NULL);
}

TEST(two_nodes_of_one_machine_have_mappings_of_their_own)
{
    struct ranks r = { .size = 5, .nodes = 2, .per_node = { 2, 3 }, .run = write_and_read };
    ranks_start(&r);
    ranks_finish(&r);
    ranks_check_ok(&r);
}

/* ---- counters ---- */

/* A ring: each rank adds to what its left neighbour left, a thousand times round. */
static void pass_round(struct rank_env *env)
{
    struct node *node = open_node(env, 20);
    int me = env->world.local_rank, size = env->world.local_size;
    uint64_t *sum;
    CHECK_OK(node_map(node, 4096, "a sum", (void **)&sum));
    for (uint64_t round = 1; round <= 1000; round++) {
        if (me > 0)
            CHECK_OK(node_wait(node, me - 1, 7, round));
        else if (round > 1)
            CHECK_OK(node_wait(node, size - 1, 7, round - 1));
        *sum += (uint64_t)me + 1;
        node_post(node, 7, round);
    }
    CHECK_OK(node_wait_all(node, 7, 1000));
    CHECK_INT(*sum, 1000 * size * (size + 1) / 2);
    CHECK(node_reached_all(node, 7, 1000));
    CHECK(!node_reached_all(node, 7, 1001));
    CHECK(!node_reached_all(node, 8, 1));
    CHECK_OK(node_barrier(node));
    node_close(node);
}

TEST(a_chain_of_counters_keeps_its_order)
{
    for (int size = 2; size <= 8; size += 3)
        ranks_run(size, 1, pass_round, NULL);
}

/* Every rank writes its own cell, posts, waits for all, checks all cells: also with values beyond
 * 32 bits. */
static void post_and_wait_all(struct rank_env *env)
{
    struct node *node = open_node(env, 20);
    int me = env->world.local_rank, size = env->world.local_size;
    volatile uint64_t *cells;
    CHECK_OK(node_map(node, 1 << 16, "cells", (void **)&cells));
    const uint64_t base = 0xfffffff0; /* passes 2^32 on the way */
    for (uint64_t i = 1; i <= 2000; i++) {
        cells[512 * me] = i;
        node_post(node, 0, base + 2 * i - 1);
        CHECK_OK(node_wait_all(node, 0, base + 2 * i - 1));
        for (int who = 0; who < size; who++)
            CHECK_INT(cells[512 * who], i);
        node_post(node, 1, i); /* read: may be written again */
        CHECK_OK(node_wait_all(node, 1, i));
    }
    CHECK_OK(node_barrier(node));
    node_close(node);
}

TEST(waiting_for_all_sees_what_each_wrote_before_it_posted)
{
    for (int size = 2; size <= 8; size += 2)
        ranks_run(size, 1, post_and_wait_all, NULL);
}

/* ---- lateness and loss ---- */

static void one_late(struct rank_env *env)
{
    struct node *node = open_node(env, 0.4);
    uint64_t begin = clock_ns();
    if (env->world.rank == 4 || env->world.rank == 5) {
        clock_sleep_ms(1500);
    } else if (env->world.rank == 3) {
        CHECK_ERROR(node_wait(node, 2, 5, 1), RAIA_ETIMEDOUT, "counter 5: rank 5 did not come");
    } else if (env->world.node == 1) {
        CHECK_ERROR(node_wait_all(node, 5, 1), RAIA_ETIMEDOUT,
                    "node 1, counter 5: rank 3, 4, 5, 6 did not come");
    } else {
        CHECK_OK(node_barrier(node));
    }
    double s = (double)(clock_ns() - begin) * 1e-9;
    CHECK(env->world.node == 0 || env->world.rank == 4 || env->world.rank == 5 || s < 1.2);
    node_close(node);
}

TEST(a_wait_that_times_out_names_the_late_ranks_by_their_global_numbers)
{
    struct ranks r = { .size = 7, .nodes = 2, .per_node = { 3, 4 }, .run = one_late };
    ranks_start(&r);
    ranks_finish(&r);
    ranks_check_ok(&r);
}

static void barrier_late(struct rank_env *env)
{
    struct node *node = open_node(env, 0.4);
    if (env->world.rank == 1)
        clock_sleep_ms(1000);
    else
        CHECK_ERROR(node_barrier(node), RAIA_ETIMEDOUT, "rank 1 did not come");
    node_close(node);
}

TEST(a_barrier_that_times_out_names_the_late_rank)
{
    ranks_run(3, 1, barrier_late, NULL);
}

static void killed_in_wait(struct rank_env *env)
{
    struct node *node = open_node(env, 60);
    int who = *(int *)env->arg;
    if (env->world.rank == who) {
        clock_sleep_ms(200);
        raise(SIGKILL);
    }
    raia_status status = env->world.rank % 2 == 0 ? node_barrier(node) : node_wait_all(node, 0, 1);
    CHECK_INT(status, RAIA_EPEER);
    char text[32];
    snprintf(text, sizeof text, "rank %d was lost", who);
    CHECK(strstr(raia_error(), text) != NULL);
    node_close(node);
}

TEST(when_any_rank_is_killed_the_others_leave_their_waits_within_seconds)
{
    for (int who = 0; who < 4; who++) {
        struct ranks r = {
            .size = 4, .run = killed_in_wait, .arg = &who, .abort_on_loss = true, .limit_s = 8
        };
        uint64_t begin = clock_ns();
        ranks_start(&r);
        ranks_finish(&r);
        CHECK((double)(clock_ns() - begin) < 5e9);
        for (int i = 0; i < 4; i++)
            CHECK_INT(r.codes[i], i == who ? 128 + SIGKILL : 0);
    }
}

/* ---- ranks that cannot share ---- */

static void in_another_namespace(struct rank_env *env)
{
    struct node *node;
    bool apart = env->world.rank == 2;
    if (apart && unshare(CLONE_NEWNET) < 0)
        _exit(7);
    raia_status status = node_open(&node, env->control, &env->world, 10);
    if (status == RAIA_OK)
        CHECK_FAIL("the node opened");
    if (strstr(raia_error(), "rank 2 cannot share memory with rank 0") == NULL)
        CHECK_FAIL("rank %d: %s", env->world.rank, raia_error());
}

TEST(a_rank_in_another_network_namespace_is_named_by_all_at_once)
{
    struct ranks r = { .size = 4, .run = in_another_namespace };
    uint64_t begin = clock_ns();
    ranks_start(&r);
    ranks_finish(&r);
    if (r.codes[2] == 7)
        SKIP("no right to make a network namespace");
    ranks_check_ok(&r);
    CHECK((double)(clock_ns() - begin) < 5e9); /* not only when the timeout is over */
}

static void one_absent(struct rank_env *env)
{
    struct node *node;
    if (env->world.rank == 1) {
        clock_sleep_ms(1200);
        return;
    }
    raia_status status = node_open(&node, env->control, &env->world, 0.5);
    CHECK(status != RAIA_OK);
    if (strstr(raia_error(), "rank 1 did not come") == NULL)
        CHECK_FAIL("rank %d: %s", env->world.rank, raia_error());
}

TEST(a_rank_that_never_comes_is_named)
{
    ranks_run(3, 1, one_absent, NULL);
}

/* ---- memory ---- */

static void too_much(struct rank_env *env)
{
    struct node *node = open_node(env, 10);
    void *base;
    raia_status status = node_map(node, (size_t)1 << 44, "sixteen terabytes", &base);
    CHECK_INT(status, RAIA_ENOMEM);
    CHECK(strstr(raia_error(), "sixteen terabytes") != NULL);
    CHECK_OK(node_map(node, 1 << 20, "a little", &base)); /* the node goes on */
    CHECK_OK(node_barrier(node));
    node_close(node);
}

TEST(a_mapping_that_does_not_fit_fails_on_all_ranks_and_harms_nothing)
{
    ranks_run(3, 1, too_much, NULL);
}

static void unequal(struct rank_env *env)
{
    struct node *node = open_node(env, 1);
    void *base;
    if (env->world.rank == 1)
        CHECK_ERROR(node_map(node, 8192, "x", &base), RAIA_EBUG,
                    "rank 1 maps 8192 bytes for x, rank 0 maps 4096 bytes for x");
    else
        CHECK_ERROR(node_map(node, 4096, "x", &base), RAIA_ETIMEDOUT, "rank 1");
    node_close(node);
}

TEST(ranks_that_ask_for_different_mappings_are_told_apart)
{
    ranks_run(2, 1, unequal, NULL);
}

/* Bytes of the file behind a mapping that are allocated; -1 when that cannot be told. */
static long long allocated_behind(const void *base)
{
    char line[512], path[64];
    unsigned long begin, end;
    long long bytes = -1;
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        struct stat info;
        if (sscanf(line, "%lx-%lx", &begin, &end) != 2 || begin != (unsigned long)base)
            continue;
        snprintf(path, sizeof path, "/proc/self/map_files/%lx-%lx", begin, end);
        if (stat(path, &info) == 0)
            bytes = (long long)info.st_blocks * 512;
    }
    fclose(maps);
    return bytes;
}

static void resident(struct rank_env *env)
{
    struct node *node = open_node(env, 10);
    void *base;
    size_t bytes = (9U << 20) + 4096;
    CHECK_OK(node_map(node, bytes, "pages", &base));
    long long got = allocated_behind(base);
    if (got < 0)
        _exit(7);
    CHECK(got >= (long long)bytes);
    CHECK_OK(node_barrier(node));
    node_close(node);
}

TEST(a_mapping_is_allocated_whole_before_it_is_used)
{
    struct ranks r = { .size = 3, .run = resident };
    ranks_start(&r);
    ranks_finish(&r);
    if (r.codes[0] == 7)
        SKIP("no right to look behind mappings");
    ranks_check_ok(&r);
}

TEST_MAIN
