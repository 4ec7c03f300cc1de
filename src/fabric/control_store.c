/* The values that ranks published, for as long as the server lives. */
#include "fabric/control_priv.h"

#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

enum { STORE_KEYS_MAX = 1 << 18, STORE_BYTES_MAX = 1 << 30 };

struct entry {
    UT_hash_handle hh;
    size_t len;
    uint8_t *data; /* behind the key, in the same allocation */
    char key[];
};

static struct entry *find(const struct control_server *server, const char *key)
{
    struct entry *found;
    HASH_FIND_STR(server->store, key, found);
    return found;
}

raia_status store_put(struct control_server *server, const char *key, const void *data, size_t len)
{
    if (find(server, key) != NULL)
        return fail(RAIA_EINVAL, "control key '%s' has been put already", key);
    if (HASH_COUNT(server->store) >= STORE_KEYS_MAX || server->stored + len > STORE_BYTES_MAX)
        return fail(RAIA_ENOMEM, "control store is full: %u keys, %zu bytes",
                    HASH_COUNT(server->store), server->stored);
    size_t key_len = strlen(key) + 1;
    struct entry *entry;
    RAIA_TRY(mem_alloc((void **)&entry, 1, sizeof *entry + key_len + len));
    memcpy(entry->key, key, key_len);
    entry->data = (uint8_t *)entry->key + key_len;
    entry->len = len;
    if (len > 0)
        memcpy(entry->data, data, len);
    HASH_ADD_STR(server->store, key, entry);
    if (entry->hh.tbl == NULL) {
        free(entry);
        return fail(RAIA_ENOMEM, "out of memory for control key '%s'", key);
    }
    server->stored += len;
    return RAIA_OK;
}

bool store_get(const struct control_server *server, const char *key, const void **data, size_t *len)
{
    const struct entry *entry = find(server, key);
    if (entry == NULL)
        return false;
    *data = entry->data;
    *len = entry->len;
    return true;
}

void store_release(struct control_server *server)
{
    struct entry *entry, *after;
    HASH_ITER(hh, server->store, entry, after)
    {
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the table goes with its last element only */
        HASH_DEL(server->store, entry);
        free(entry);
    }
}
