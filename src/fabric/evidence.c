/* What proves the wire, for a world of one node: nothing crossed any, and all ranks say so from one
 * boot of one machine. */
#include "fabric/fabric.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

raia_status evidence_take(struct wire *wire, const struct world *world, const char *root,
                          json_t **out)
{
    char host[256] = "", netns[64] = "", *boot = NULL;
    size_t len;
    (void)root; /* interfaces are counted between nodes only */
    gethostname(host, sizeof host - 1);
    ssize_t n = readlink("/proc/self/ns/net", netns, sizeof netns - 1);
    netns[n > 0 ? n : 0] = '\0';
    RAIA_TRY(file_read("/proc/sys/kernel/random/boot_id", 256, &boot, &len));
    boot[strcspn(boot, "\n")] = '\0';
    *out =
        json_pack("{s:i, s:i, s:s, s:s, s:s, s:s}", "rank", world->rank, "node", world->node,
                  "host", host, "netns", netns, "boot_id", boot, "provider", wire_provider(wire));
    free(boot);
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Ranks that shared memory were on one kernel: evidence that says otherwise is not believed. */
static bool one_machine(const json_t *ranks)
{
    size_t i;
    json_t *rank;
    json_array_foreach(ranks, i, rank)
    {
        if (strcmp(text_of(rank, "boot_id"), text_of(json_array_get(ranks, 0), "boot_id")) != 0 ||
            strcmp(text_of(rank, "provider"), "shm") != 0)
            return false;
    }
    return i > 0;
}

raia_status evidence_verdict(const json_t *before, const json_t *after, const char *require,
                             json_t **out)
{
    bool proven = one_machine(before) && one_machine(after);
    bool met = require == NULL || strcmp(require, "shm") == 0;
    const char *reason = !proven ? "the ranks' evidence does not agree on one machine"
                         : !met  ? "all ranks ran on one node and met in shared memory: no byte "
                                   "crossed a wire"
                                 : "all ranks ran on one node and met in shared memory";
    const char *state = proven && met ? "pass" : require != NULL ? "fail" : "inconclusive";
    *out = json_pack("{s:s, s:s, s:s?, s:s, s:[]}", "fabric", "shm", "status", state, "required",
                     require, "reason", reason, "pairs");
    if (*out == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    if (!met)
        json_object_set_new(*out, "mend", json_string("run on more than one node, or require shm"));
    return RAIA_OK;
}

raia_status evidence_table(const json_t *verdict, struct buf *out)
{
    return buf_printf(out, "fabric %s: %s (%s)\n", text_of(verdict, "fabric"),
                      text_of(verdict, "status"), text_of(verdict, "reason"));
}

raia_status evidence_precheck(struct wire *wire, const char *require)
{
    if (require == NULL || strcmp(require, wire_provider(wire)) == 0)
        return RAIA_OK;
    return fail(RAIA_EFABRIC,
                "fabric %s is required, and all ranks are on one node, which meets in shared "
                "memory: run on more than one node, or require shm",
                require);
}
