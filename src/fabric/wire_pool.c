/* Requests and announcements: cut from blocks, handed out again and again, freed together. After
 * the first steps of a run nothing is allocated. */
#include "fabric/wire_priv.h"

#include <stdlib.h>

enum { BLOCK = 256 }; /* items */

/* An array of COUNT pointers gets room for MORE; it doubles. */
static raia_status grow(void *array, int count, int more)
{
    if (count != 0 && ((count & (count - 1)) != 0 || count < more))
        return RAIA_OK;
    size_t room = count == 0 ? (size_t)more : 2 * (size_t)count;
    void *larger = realloc(*(void **)array, room * sizeof(void *));
    if (larger == NULL)
        return fail(RAIA_ENOMEM, "out of memory for %zu transfers", room);
    *(void **)array = larger;
    return RAIA_OK;
}

static raia_status new_block(struct wire *wire, size_t size, void *out)
{
    RAIA_TRY(grow(&wire->blocks, wire->block_count, 1));
    void *block;
    RAIA_TRY(mem_alloc(&block, BLOCK, size));
    wire->blocks[wire->block_count++] = block;
    *(void **)out = block;
    return RAIA_OK;
}

static raia_status more_requests(struct wire *wire)
{
    struct wire_request *block;
    RAIA_TRY(grow(&wire->requests, wire->request_count, BLOCK));
    RAIA_TRY(new_block(wire, sizeof *block, &block));
    for (int i = 0; i < BLOCK; i++) {
        block[i].index = (uint32_t)wire->request_count;
        wire->requests[wire->request_count++] = &block[i];
        block[i].next = wire->idle_requests;
        wire->idle_requests = &block[i];
    }
    return RAIA_OK;
}

raia_status pool_request(struct wire *wire, struct wire_request **out)
{
    if (wire->idle_requests == NULL)
        RAIA_TRY(more_requests(wire));
    struct wire_request *r = wire->idle_requests;
    wire->idle_requests = r->next;
    *r = (struct wire_request){ .index = r->index };
    *out = r;
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
    free(wire->requests);
    wire->blocks = NULL;
    wire->requests = NULL;
    wire->block_count = wire->request_count = 0;
}
