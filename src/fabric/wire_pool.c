/* Requests, operations and announcements: cut from blocks, handed out again and again, freed together. After the
 * first steps of a run nothing is allocated. */
#include "fabric/wire_priv.h"

#include <stdlib.h>

enum { BLOCK = 256 }; /* items */

static raia_status new_block(struct wire *wire, size_t size, void *out)
{
    if ((wire->block_count & (wire->block_count - 1)) == 0) { /* a power of two: double */
        size_t room = wire->block_count == 0 ? 1 : 2 * (size_t)wire->block_count;
        void **blocks = realloc(wire->blocks, room * sizeof *blocks);
        if (blocks == NULL)
            return fail(RAIA_ENOMEM, "out of memory for %zu blocks of transfers", room);
        wire->blocks = blocks;
    }
    void *block;
    RAIA_TRY(mem_alloc(&block, BLOCK, size));
    wire->blocks[wire->block_count++] = block;
    *(void **)out = block;
    return RAIA_OK;
}

raia_status pool_request(struct wire *wire, struct wire_request **out)
{
    if (wire->idle_requests == NULL) {
        struct wire_request *block;
        RAIA_TRY(new_block(wire, sizeof *block, &block));
        for (int i = 0; i < BLOCK; i++) {
            block[i].all = wire->requests;
            wire->requests = &block[i];
            block[i].next = wire->idle_requests;
            wire->idle_requests = &block[i];
        }
    }
    *out = wire->idle_requests;
    wire->idle_requests = (*out)->next;
    **out = (struct wire_request){ .all = (*out)->all };
    return RAIA_OK;
}

raia_status pool_op(struct wire *wire, struct wire_op **out)
{
    if (wire->idle_ops == NULL) {
        struct wire_op *block;
        RAIA_TRY(new_block(wire, sizeof *block, &block));
        for (int i = 0; i < BLOCK; i++) {
            block[i].kind = OP_DATA;
            block[i].next = wire->idle_ops;
            wire->idle_ops = &block[i];
        }
    }
    *out = wire->idle_ops;
    wire->idle_ops = (*out)->next;
    return RAIA_OK;
}

raia_status pool_ready(struct wire *wire, struct wire_ready **out)
{
    if (wire->idle_ready == NULL) {
        struct wire_ready *block;
        RAIA_TRY(new_block(wire, sizeof *block, &block));
        for (int i = 0; i < BLOCK; i++) {
            block[i].next = wire->idle_ready;
            wire->idle_ready = &block[i];
        }
    }
    *out = wire->idle_ready;
    wire->idle_ready = (*out)->next;
    return RAIA_OK;
}

void pool_release(struct wire *wire)
{
    for (int i = 0; i < wire->block_count; i++)
        free(wire->blocks[i]);
    free(wire->blocks);
    wire->blocks = NULL;
    wire->block_count = 0;
}
