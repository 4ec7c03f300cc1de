/* The wire between ranks of different nodes: transfers, their order, and their failures. */
#include "ranks.h"

static struct wire *open_wire(struct rank_env *env, const char *name, double timeout_s)
{
    struct wire *wire;
    CHECK_OK(wire_open(&wire, env->control, &env->world, name, timeout_s));
    return wire;
}

/* Byte I of the message that FROM sends under TAG. */
static unsigned char byte_of(int from, uint64_t tag, size_t i)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7 + (size_t)from * 13 + tag * 17);
}

static unsigned char *new_message(int from, uint64_t tag, size_t len)
{
    unsigned char *data = malloc(len + 1);
    CHECK(data != NULL);
    for (size_t i = 0; i < len; i++)
        data[i] = byte_of(from, tag, i);
    return data;
}

static void check_message(const unsigned char *data, int from, uint64_t tag, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] != byte_of(from, tag, i))
            CHECK_FAIL("byte %zu of %zu from rank %d, tag %d: %d", i, len, from, (int)tag, data[i]);
}

/* ---- sizes ---- */

static void exchange_sizes(struct rank_env *env)
{
    static const size_t sizes[] = { 0,        1,     39,    40,
                                    41,       127,   128,   129,
                                    4096,     65535, 65537, 1U << 20,
                                    9999,     12345, 99999, (4U << 20) + 3,
                                    64U << 20 };
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

TEST_MAIN
