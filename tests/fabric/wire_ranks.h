/* wire_ranks: what the tests of the wire share: opening it, and messages whose bytes tell who sent
 * them. */
#ifndef RAIA_TESTS_FABRIC_WIRE_RANKS_H
#define RAIA_TESTS_FABRIC_WIRE_RANKS_H

#include "ranks.h"

static inline struct wire *open_wire(struct rank_env *env, const char *name, double timeout_s)
{
    struct wire *wire;
    CHECK_OK(wire_open(&wire, env->control, &env->world, name, timeout_s));
    return wire;
}

/* Byte I of the message that FROM sends under TAG. */
static inline unsigned char byte_of(int from, uint64_t tag, size_t i)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7 + (size_t)from * 13 + tag * 17);
}

static inline unsigned char *new_message(int from, uint64_t tag, size_t len)
{
    unsigned char *data = malloc(len + 1);
    CHECK(data != NULL);
    for (size_t i = 0; i < len; i++)
        data[i] = byte_of(from, tag, i);
    return data;
}

static inline void check_message(const unsigned char *data, int from, uint64_t tag, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] != byte_of(from, tag, i))
            CHECK_FAIL("byte %zu of %zu from rank %d, tag %d: %d", i, len, from, (int)tag, data[i]);
}

#endif
