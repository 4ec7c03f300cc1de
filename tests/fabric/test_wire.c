/* The wire between ranks of different nodes: bytes arrive whole, whatever their order. */
#include "fabric/wire_priv.h"
#include "wire_ranks.h"

#include <sys/resource.h>

/* ---- sizes ---- */

static void exchange_sizes(struct rank_env *env)
{
    static const size_t sizes[] = { 0,    1,     39,       40,    41,    127,      128,
                                    129,  4096,  65535,    65537, 99999, 1U << 20, (4U << 20) + 3,
                                    9999, 12345, 64U << 20 };
    int me = env->world.rank, peer = 1 - me;
    struct wire *wire = open_wire(env, "auto", 20);
    for (uint64_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        unsigned char *out = new_message(me, s, sizes[s]), *in = malloc(sizes[s] + 1);
        struct wire_request *sent, *got;
        CHECK(in != NULL);
        in[sizes[s]] = 77;
        if (s % 2 == 0) {
            CHECK_OK(wire_recv(wire, peer, s, in, sizes[s], &got));
            CHECK_OK(wire_send(wire, peer, s, out, sizes[s], &sent));
        } else {
            CHECK_OK(wire_send(wire, peer, s, out, sizes[s], &sent));
            CHECK_OK(wire_recv(wire, peer, s, in, sizes[s], &got));
        }
        CHECK_OK(wire_wait(wire, sent));
        memset(out, 0xee, sizes[s]); /* the buffer is ours again */
        CHECK_OK(wire_wait(wire, got));
        check_message(in, peer, s, sizes[s]);
        CHECK_INT(in[sizes[s]], 77);
        free(out);
        free(in);
    }
    wire_close(wire);
}

TEST(every_size_from_nothing_to_64_mib_arrives_whole)
{
    ranks_run(2, 2, exchange_sizes, NULL);
}

TEST(every_size_arrives_over_libfabrics_older_tcp_too)
{
    setenv("FI_PROVIDER", "tcp", 1);
    ranks_run(2, 2, exchange_sizes, NULL);
}

/* ---- order ---- */

enum { MANY = 700 };

static uint32_t step(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

static void shuffle(int *order, uint32_t seed)
{
    for (int i = 0; i < MANY; i++)
        order[i] = i;
    for (int i = MANY - 1; i > 0; i--) {
        int other = (int)(step(&seed) % (uint32_t)(i + 1)), keep = order[i];
        order[i] = order[other];
        order[other] = keep;
    }
}

static size_t size_of(int message)
{
    return message % 7 == 0 ? (size_t)message * 171 : (size_t)message % 300;
}

/* Rank 0 opens all its receives first, rank 1 all its sends. */
static void exchange_many(struct rank_env *env)
{
    static unsigned char *out[MANY], *in[MANY];
    static struct wire_request *sent[MANY], *got[MANY];
    int order[MANY], me = env->world.rank, peer = 1 - me;
    struct wire *wire = open_wire(env, "tcp", 20);
    for (int i = 0; i < MANY; i++) {
        out[i] = new_message(me, (uint64_t)i, size_of(i));
        in[i] = calloc(1, size_of(i) + 1);
        CHECK(in[i] != NULL);
    }
    for (int half = 0; half < 2; half++) {
        shuffle(order, (uint32_t)(7 * me + half));
        for (int i = 0; i < MANY; i++) {
            int n = order[i];
            if (half == me)
                CHECK_OK(wire_recv(wire, peer, (uint64_t)n << 32, in[n], size_of(n), &got[n]));
            else
                CHECK_OK(wire_send(wire, peer, (uint64_t)n << 32, out[n], size_of(n), &sent[n]));
        }
    }
    shuffle(order, (uint32_t)(100 + me));
    for (int i = 0; i < MANY; i++) {
        int n = order[i];
        CHECK_OK(wire_wait(wire, n % 2 == 0 ? got[n] : sent[n]));
        CHECK_OK(wire_wait(wire, n % 2 == 0 ? sent[n] : got[n]));
        check_message(in[n], peer, (uint64_t)n, size_of(n));
        free(in[n]);
        free(out[n]);
    }
    wire_close(wire);
}

TEST(hundreds_of_open_transfers_meet_by_tag_in_any_order)
{
    ranks_run(2, 2, exchange_many, NULL);
}

TEST(hundreds_of_open_transfers_meet_over_libfabrics_older_tcp_too)
{
    setenv("FI_PROVIDER", "tcp", 1);
    ranks_run(2, 2, exchange_many, NULL);
}

static void repeat_tag(struct rank_env *env)
{
    enum { TIMES = 100 };
    struct wire_request *request[TIMES];
    uint32_t value[TIMES];
    int me = env->world.rank;
    struct wire *wire = open_wire(env, "auto", 20);
    for (uint32_t i = 0; i < TIMES; i++) {
        value[i] = me == 0 ? i : 0xffffffff;
        if (me == 0)
            CHECK_OK(wire_send(wire, 1, 5, &value[i], sizeof value[i], &request[i]));
        else
            CHECK_OK(wire_recv(wire, 0, 5, &value[i], sizeof value[i], &request[i]));
    }
    for (int i = TIMES - 1; i >= 0; i--)
        CHECK_OK(wire_wait(wire, request[i]));
    for (uint32_t i = 0; i < TIMES; i++)
        CHECK_INT(value[i], i);
    wire_close(wire);
}

TEST(messages_of_one_tag_match_in_order)
{
    ranks_run(2, 2, repeat_tag, NULL);
}

/* ---- registered memory ---- */

/* As with a provider that wants registered buffers: some are registered once, others each time. */
static void exchange_registered(struct rank_env *env)
{
    enum { LEN = 50000 };
    int me = env->world.rank, peer = 1 - me;
    struct wire *wire = open_wire(env, "auto", 20);
    unsigned char *out = new_message(me, 2, LEN), *in = calloc(1, LEN);
    struct wire_request *sent, *got;
    CHECK(in != NULL);
    wire->ep.local_mr = true;
    CHECK_OK(wire_register(wire, out, LEN));
    CHECK_OK(wire_register(wire, out + 100, LEN - 100)); /* lies in the first */
    CHECK_INT(wire->ep.region_count, 1);
    for (int round = 0; round < 20; round++) {
        CHECK_OK(wire_recv(wire, peer, 2, in, LEN, &got));
        CHECK_OK(wire_send(wire, peer, 2, out, LEN, &sent));
        CHECK(got->mr != NULL && got->desc == fi_mr_desc(got->mr));
        CHECK(sent->mr == NULL && sent->desc == fi_mr_desc(wire->ep.regions[0].mr));
        CHECK_OK(wire_wait(wire, got));
        CHECK_OK(wire_wait(wire, sent));
        check_message(in, peer, 2, LEN);
        memset(in, 0, LEN);
    }
    wire_close(wire);
    free(out);
    free(in);
}

TEST(buffers_are_registered_once_or_for_one_transfer)
{
    ranks_run(2, 2, exchange_registered, NULL);
}

/* ---- all to all ---- */

static void all_to_all(struct rank_env *env)
{
    const struct world *w = &env->world;
    struct wire *wire = open_wire(env, "auto", 30);
    for (uint64_t round = 0; round < 10; round++) {
        size_t len = round * round * 3001;
        struct wire_request *sent[16], *got[16];
        unsigned char *in[16], *out = new_message(w->rank, round, len);
        for (int i = 1; i < w->size; i++) {
            int peer = (w->rank + i) % w->size;
            if (world_node_of(w, peer) == w->node)
                continue;
            in[peer] = malloc(len + 1);
            CHECK(in[peer] != NULL);
            CHECK_OK(wire_send(wire, peer, round, out, len, &sent[peer]));
            CHECK_OK(wire_recv(wire, peer, round, in[peer], len, &got[peer]));
        }
        for (int peer = 0; peer < w->size; peer++) {
            if (world_node_of(w, peer) == w->node)
                continue;
            CHECK_OK(wire_wait(wire, sent[peer]));
            CHECK_OK(wire_wait(wire, got[peer]));
            check_message(in[peer], peer, round, len);
            free(in[peer]);
        }
        free(out);
    }
    wire_close(wire);
}

TEST(eight_ranks_on_two_three_and_four_nodes_exchange_with_all)
{
    ranks_run(8, 2, all_to_all, NULL);
    ranks_run(8, 4, all_to_all, NULL);
    struct ranks uneven = { .size = 8, .nodes = 3, .per_node = { 1, 5, 2 }, .run = all_to_all };
    ranks_start(&uneven);
    ranks_finish(&uneven);
    ranks_check_ok(&uneven);
}

/* ---- waiting and closing ---- */

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void wait_long(struct rank_env *env)
{
    struct wire *wire = open_wire(env, "auto", 20);
    struct wire_request *request;
    char byte = 9;
    if (env->world.rank == 0) {
        double before = cpu_s();
        CHECK_OK(wire_recv(wire, 1, 1, &byte, 1, &request));
        CHECK_OK(wire_wait(wire, request));
        CHECK(cpu_s() - before < 0.3);
        CHECK_INT(byte, 9);
    } else {
        clock_sleep_ms(1000);
        CHECK_OK(wire_send(wire, 0, 1, &byte, 1, &request));
        CHECK_OK(wire_wait(wire, request));
    }
    wire_close(wire);
}

TEST(a_wait_of_a_second_takes_little_processor_time)
{
    ranks_run(2, 2, wait_long, NULL);
}

/* A sender that closes at once must not take back what is under way. */
static void send_and_leave(struct rank_env *env)
{
    enum { LEN = 300000 };
    struct wire *wire = open_wire(env, "auto", 20);
    struct wire_request *request;
    unsigned char *data = new_message(0, 3, LEN);
    if (env->world.rank == 0) {
        CHECK_OK(wire_send(wire, 1, 3, data, LEN, &request));
    } else {
        memset(data, 0, LEN);
        CHECK_OK(wire_recv(wire, 0, 3, data, LEN, &request));
        while (!wire_done(wire, request))
            clock_sleep_ms(50);
    }
    CHECK_OK(wire_wait(wire, request));
    check_message(data, 0, 3, LEN);
    wire_close(wire);
    free(data);
}

TEST(a_message_outlives_its_senders_wire)
{
    ranks_run(2, 2, send_and_leave, NULL);
}

TEST_MAIN
