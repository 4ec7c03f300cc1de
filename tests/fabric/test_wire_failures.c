/* The wire's failures name the rank, the setting or the choice that is wrong, and end in time. */
#include "fabric/wire_priv.h"
#include "wire_ranks.h"

/* ---- lengths ---- */

static void exchange(struct rank_env *env, struct wire *wire, uint64_t tag)
{
    int me = env->world.rank, peer = 1 - me;
    unsigned char *out = new_message(me, tag, 1000), in[1000];
    struct wire_request *sent, *got;
    CHECK_OK(wire_recv(wire, peer, tag, in, sizeof in, &got));
    CHECK_OK(wire_send(wire, peer, tag, out, sizeof in, &sent));
    CHECK_OK(wire_wait(wire, sent));
    CHECK_OK(wire_wait(wire, got));
    check_message(in, peer, tag, sizeof in);
    free(out);
}

static void differ_in_length(struct rank_env *env)
{
    struct wire *wire = open_wire(env, "auto", 20);
    struct wire_request *request;
    char data[128] = { 0 };
    if (env->world.rank == 0) {
        CHECK_OK(wire_send(wire, 1, 3, data, 100, &request));
        CHECK_ERROR(wire_wait(wire, request), RAIA_EBUG,
                    "100 bytes are sent to rank 1, which expects 64 (tag 3)");
    } else {
        CHECK_OK(wire_recv(wire, 0, 3, data, 64, &request));
        CHECK_ERROR(wire_wait(wire, request), RAIA_EBUG,
                    "64 bytes are expected from rank 0, which sends 100 (tag 3)");
    }
    exchange(env, wire, 3);
    wire_close(wire);
}

TEST(another_length_than_asked_for_is_told_to_both_and_the_wire_goes_on)
{
    ranks_run(2, 2, differ_in_length, NULL);
}

static void address_wrongly(struct rank_env *env)
{
    struct wire *wire = open_wire(env, "auto", 20);
    struct wire_request *request;
    char byte;
    CHECK_ERROR(wire_recv(wire, env->world.rank, 1, &byte, 1, &request), RAIA_EBUG,
                "reaches no rank");
    CHECK_ERROR(wire_send(wire, 2, 1, &byte, 1, &request), RAIA_EBUG, "reaches no rank 2");
    wire_close(wire);
}

TEST(only_ranks_of_other_nodes_are_reached)
{
    ranks_run(2, 2, address_wrongly, NULL);
}

/* ---- peers that are gone ---- */

static void expect_within(uint64_t begin_ns, double seconds)
{
    double took = (double)(clock_ns() - begin_ns) / 1e9;
    if (took > seconds)
        CHECK_FAIL("took %.1f s, more than %.1f", took, seconds);
}

static void lose_a_sender(struct rank_env *env)
{
    struct wire *wire = open_wire(env, "auto", 2);
    struct wire_request *request;
    char byte;
    if (env->world.rank == 1)
        raise(SIGKILL);
    uint64_t begin = clock_ns();
    CHECK_OK(wire_recv(wire, 1, 4, &byte, 1, &request));
    raia_status status = wire_wait(wire, request);
    if (status != RAIA_ETIMEDOUT && status != RAIA_EPEER)
        CHECK_FAIL("status %d: %s", (int)status, raia_error());
    CHECK(strstr(raia_error(), "rank 1") != NULL);
    expect_within(begin, 4);
    CHECK(wire_recv(wire, 1, 5, &byte, 1, &request) != RAIA_OK);
    wire_close(wire);
    expect_within(begin, 5);
}

static void check_one_killed(struct ranks *r)
{
    ranks_start(r);
    ranks_finish(r);
    CHECK_INT(r->codes[1], 128 + SIGKILL);
    for (int rank = 0; rank < r->size; rank++)
        if (rank != 1)
            CHECK_INT(r->codes[rank], 0);
}

TEST(a_killed_sender_is_named_within_the_timeout)
{
    struct ranks r = { .size = 2, .nodes = 2, .run = lose_a_sender };
    check_one_killed(&r);
}

static void lose_with_a_driver(struct rank_env *env)
{
    struct wire *wire = open_wire(env, "auto", 20);
    struct wire_request *request;
    char byte;
    if (env->world.rank == 1)
        raise(SIGKILL);
    uint64_t begin = clock_ns();
    int peer = env->world.rank == 0 ? 2 : 0;
    CHECK_OK(wire_recv(wire, peer, 4, &byte, 1, &request));
    CHECK_ERROR(wire_wait(wire, request), RAIA_EPEER, "rank 1 was lost");
    expect_within(begin, 5);
    wire_close(wire);
    expect_within(begin, 5);
}

TEST(the_runs_abort_ends_waits_for_other_ranks_too)
{
    struct ranks r = { .size = 3, .nodes = 3, .run = lose_with_a_driver, .abort_on_loss = true };
    check_one_killed(&r);
}

/* The peer takes part of a long message and dies. */
static void lose_a_receiver(struct rank_env *env)
{
    enum { LEN = 32 << 20 };
    struct wire *wire = open_wire(env, "auto", 3);
    struct wire_request *request;
    unsigned char *data = new_message(0, 1, LEN);
    uint64_t begin = clock_ns();
    if (env->world.rank == 1) {
        CHECK_OK(wire_recv(wire, 0, 1, data, LEN, &request));
        for (int i = 0; i < 3; i++) {
            wire_progress(wire);
            clock_sleep_ms(30);
        }
        raise(SIGKILL);
    }
    CHECK_OK(wire_send(wire, 1, 1, data, LEN, &request));
    raia_status status = wire_wait(wire, request);
    if (status == RAIA_OK) { /* it fitted into the kernel's buffers: the next will not */
        CHECK_OK(wire_send(wire, 1, 2, data, LEN, &request));
        status = wire_wait(wire, request);
    }
    if (status != RAIA_ETIMEDOUT && status != RAIA_EPEER)
        CHECK_FAIL("status %d: %s", (int)status, raia_error());
    CHECK(strstr(raia_error(), "rank 1") != NULL);
    expect_within(begin, 8);
    wire_close(wire);
    free(data);
}

TEST(a_receiver_killed_in_mid_message_is_named)
{
    struct ranks r = { .size = 2, .nodes = 2, .run = lose_a_receiver };
    check_one_killed(&r);
}

static void wait_for_nobody(struct rank_env *env)
{
    struct wire *wire;
    if (env->world.rank == 1) {
        clock_sleep_ms(1200);
        return;
    }
    uint64_t begin = clock_ns();
    CHECK_ERROR(wire_open(&wire, env->control, &env->world, "auto", 1), RAIA_ETIMEDOUT, "rank 1");
    expect_within(begin, 3);
}

TEST(a_peer_that_never_comes_is_named)
{
    ranks_run(2, 2, wait_for_nobody, NULL);
}

/* ---- names ---- */

static void open_badly(struct rank_env *env)
{
    struct wire *wire;
    struct rank_env *e = env;
    CHECK_ERROR(wire_open(&wire, e->control, &e->world, "ethernet", 5), RAIA_EINVAL,
                "unknown fabric 'ethernet'; choose auto, efa, verbs, tcp or shm");
    CHECK_ERROR(wire_open(&wire, e->control, &e->world, "shm", 5), RAIA_EINVAL,
                "'shm' cannot join 2 nodes");
    setenv("FI_PROVIDER", "efa", 1);
    CHECK_ERROR(wire_open(&wire, e->control, &e->world, "tcp", 5), RAIA_EINVAL,
                "FI_PROVIDER=efa and fabric 'tcp' contradict each other");
    setenv("FI_PROVIDER", "^net,tcp", 1);
    CHECK_ERROR(wire_open(&wire, e->control, &e->world, "tcp", 5), RAIA_EINVAL, "contradict");
    setenv("FI_PROVIDER", "sockets", 1);
    CHECK_ERROR(wire_open(&wire, e->control, &e->world, "auto", 5), RAIA_EINVAL, "contradict");
}

TEST(names_that_cannot_be_are_refused)
{
    ranks_run(2, 2, open_badly, NULL);
}

static void open_efa(struct rank_env *env)
{
    struct wire *wire;
    CHECK_ERROR(wire_open(&wire, env->control, &env->world, "efa", 5), RAIA_EFABRIC,
                "rank 0, 1 (fabric 'efa') found nothing");
}

TEST(a_fabric_that_is_not_there_is_said_to_be_missing)
{
    if (access("/sys/class/infiniband", F_OK) == 0)
        SKIP("this machine may have EFA devices");
    ranks_run(2, 2, open_efa, NULL);
}

static void disagree(struct rank_env *env)
{
    struct wire *wire;
    setenv("FI_PROVIDER", env->world.rank == 0 ? "net" : "^net", 1);
    CHECK_ERROR(wire_open(&wire, env->control, &env->world, "auto", 5), RAIA_EFABRIC,
                "no libfabric provider in common: rank 0 (fabric 'auto') found net; rank 1 (fabric "
                "'auto') found tcp");
}

TEST(ranks_that_found_different_providers_are_told_apart)
{
    ranks_run(2, 2, disagree, NULL);
}

static void open_alone(struct rank_env *env)
{
    struct wire *wire = open_wire(env, "auto", 5);
    CHECK_STR(wire_provider(wire), "shm");
    wire_progress(wire);
    CHECK_OK(wire_register(wire, env, sizeof *env));
    wire_close(wire);
}

TEST(one_node_needs_no_provider)
{
    setenv("FI_PROVIDER", "sockets", 1);
    ranks_run(2, 1, open_alone, NULL);
}

/* ---- interfaces ---- */

TEST(interface_patterns_are_nccls)
{
    CHECK(wire_interface_matches("eth", "eth0"));
    CHECK(wire_interface_matches("ib,eth", "eth0"));
    CHECK(!wire_interface_matches("ib", "eth0"));
    CHECK(!wire_interface_matches("=eth", "eth0"));
    CHECK(wire_interface_matches("=lo,eth0", "eth0"));
    CHECK(!wire_interface_matches("^docker,eth", "eth0"));
    CHECK(wire_interface_matches("^docker,ib", "eth0"));
    CHECK(wire_interface_matches("^=eth", "eth0"));
}

static void open_on_loopback(struct rank_env *env)
{
    setenv("NCCL_SOCKET_IFNAME", "=lo", 1);
    struct wire *wire = open_wire(env, "tcp", 10);
    CHECK_STR(wire->interface.name, "lo");
    exchange(env, wire, 9);
    wire_close(wire);
    setenv("NCCL_SOCKET_IFNAME", "nosuch", 1);
}

TEST(the_named_interface_is_taken)
{
    ranks_run(2, 2, open_on_loopback, NULL);
}

static void open_on_nothing(struct rank_env *env)
{
    struct wire *wire;
    setenv("NCCL_SOCKET_IFNAME", "nosuch", 1);
    CHECK_ERROR(wire_open(&wire, env->control, &env->world, "tcp", 5), RAIA_EINVAL,
                "NCCL_SOCKET_IFNAME=nosuch matches no interface that is up; there are: lo");
}

TEST(an_interface_that_is_not_there_is_refused_with_those_that_are)
{
    ranks_run(2, 2, open_on_nothing, NULL);
}

static void open_loudly(struct rank_env *env)
{
    char path[] = "/tmp/raia-wire-XXXXXX", text[1024] = "", expected[64];
    int fd = mkstemp(path), keep = dup(2);
    CHECK(fd >= 0 && keep >= 0);
    unlink(path);
    setenv("NCCL_DEBUG", "INFO", 1);
    dup2(fd, 2);
    struct wire *wire = open_wire(env, "auto", 10);
    dup2(keep, 2);
    CHECK(pread(fd, text, sizeof text - 1, 0) > 0);
    snprintf(expected, sizeof expected, "NCCL INFO NET/%s : Using [0]lo:127.0.0.1<0> ; libfabric ",
             wire_provider(wire));
    if (strstr(text, expected) == NULL)
        CHECK_FAIL("\"%s\" lacks \"%s\"", text, expected);
    wire_close(wire);
    close(fd);
    close(keep);
}

TEST(nccl_debug_info_prints_the_choice)
{
    ranks_run(2, 2, open_loudly, NULL);
}

TEST_MAIN
