/* The wire: opened by all ranks together, then a thin face over the flow of transfers. */
#include "fabric/wire_priv.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- open ---- */

/* What each rank knows before any choice: where it is, what was asked of it, a number for the run.
 */
static raia_status meet_hosts(struct wire *wire, const char *name, uint64_t deadline,
                              bool *one_host)
{
    char host[160], nonce[17];
    struct wire_place place;
    RAIA_TRY(wire_place(&place));
    snprintf(host, sizeof host, "%s %s", place.boot, place.netns);
    RAIA_TRY(str_random_hex(nonce, 8));
    json_t *mine = json_pack("{s:s, s:s, s:s}", "host", host, "fabric", name, "nonce", nonce), *all;
    if (mine == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status =
        control_gather(wire->control, "wire-host", wire->world.size, mine, deadline, &all);
    json_decref(mine);
    RAIA_TRY(status);
    *one_host = true;
    for (int rank = 0; rank < wire->world.size; rank++)
        *one_host =
            *one_host && json_equal(json_object_get(json_array_get(all, (size_t)rank), "host"),
                                    json_object_get(json_array_get(all, 0), "host"));
    const char *first = json_string_value(json_object_get(json_array_get(all, 0), "nonce"));
    wire->run = first != NULL ? str_hash(first, strlen(first)) : 0;
    json_decref(all);
    return RAIA_OK;
}

static raia_status choose_provider(struct wire *wire, const struct wire_lib *lib, const char *name,
                                   uint64_t deadline)
{
    json_t *found, *all;
    RAIA_TRY(wire_found(lib, name, wire->interface.address, &found));
    json_t *mine = json_pack("{s:s, s:o}", "wanted", name, "found", found);
    if (mine == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status =
        control_gather(wire->control, "wire-found", wire->world.size, mine, deadline, &all);
    json_decref(mine);
    RAIA_TRY(status);
    status = wire_agree(all, &wire->provider);
    json_decref(all);
    return status;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef", *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

enum { ADDRESS_MAX = 256 };

static raia_status insert_address(struct wire *wire, struct wire_peer *peer, const json_t *text)
{
    unsigned char address[ADDRESS_MAX];
    const char *hex = json_string_value(text);
    size_t len = hex != NULL ? strlen(hex) / 2 : 0;
    if (len == 0 || len > sizeof address)
        return fail(RAIA_EFORMAT, "rank %d gave no address of its endpoint", peer->rank);
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return fail(RAIA_EFORMAT, "rank %d gave a malformed address", peer->rank);
        address[i] = (unsigned char)(high * 16 + low);
    }
    if (fi_av_insert(wire->ep.av, address, 1, &peer->address, 0, NULL) != 1)
        return fail(RAIA_EFABRIC, "%s does not take the address of rank %d", wire_provider(wire),
                    peer->rank);
    return RAIA_OK;
}

static raia_status exchange_addresses(struct wire *wire, uint64_t deadline)
{
    unsigned char address[ADDRESS_MAX];
    char hex[2 * ADDRESS_MAX + 1] = "";
    size_t len = sizeof address;
    RAIA_TRY(endpoint_name(&wire->ep, address, &len));
    for (size_t i = 0; i < len && i < sizeof address; i++)
        snprintf(hex + 2 * i, 3, "%02x", address[i]);
    json_t *mine = json_string(hex), *all;
    if (mine == NULL)
        return fail(RAIA_ENOMEM, "out of memory");
    raia_status status =
        control_gather(wire->control, "wire-address", wire->world.size, mine, deadline, &all);
    json_decref(mine);
    RAIA_TRY(status);
    for (int rank = 0; rank < wire->world.size && status == RAIA_OK; rank++)
        if (wire->peers[rank].remote)
            status = insert_address(wire, &wire->peers[rank], json_array_get(all, (size_t)rank));
    json_decref(all);
    return status;
}

const char *wire_device(const struct wire *wire)
{
    const struct fid_nic *nic = wire->provider != NULL ? wire->ep.info->nic : NULL;
    if (nic == NULL || nic->device_attr == NULL || wire->provider->by_address)
        return NULL;
    return nic->device_attr->name;
}

/* One line, in the shape of NCCL's own "NET/Socket : Using [0]eth0:10.0.0.1<0>". */
static void print_choice(const struct wire *wire)
{
    const char *level = env_get("NCCL_DEBUG", ""), *device = wire_device(wire);
    char host[128] = "";
    if (strcasecmp(level, "INFO") != 0 && strcasecmp(level, "TRACE") != 0)
        return;
    gethostname(host, sizeof host - 1);
    uint32_t version = wire->ep.lib->version();
    fprintf(stderr, "%s:%d:%d [%d] NCCL INFO NET/%s : Using [0]%s:%s<0> ; libfabric %u.%u %s\n",
            host, (int)getpid(), (int)gettid(), wire->world.local_rank, wire_provider(wire),
            device != NULL ? device : wire->interface.name,
            device != NULL ? "rdma" : wire->interface.address, FI_MAJOR(version), FI_MINOR(version),
            wire->ep.lib->path);
}

static raia_status open_many(struct wire *wire, const char *name)
{
    uint64_t deadline = wire->timeout_ns != 0 ? clock_ns() + wire->timeout_ns : 0;
    const struct wire_lib *lib;
    bool one_host;
    RAIA_TRY(wire_lib_load(&lib));
    RAIA_TRY(meet_hosts(wire, name, deadline, &one_host));
    RAIA_TRY(wire_interface_choose(wire->control, one_host, &wire->interface));
    RAIA_TRY(choose_provider(wire, lib, name, deadline));
    RAIA_TRY(endpoint_open(&wire->ep, lib, wire->provider, wire->interface.address));
    RAIA_TRY(message_open(wire));
    RAIA_TRY(exchange_addresses(wire, deadline));
    RAIA_TRY(message_greet(wire, deadline));
    print_choice(wire);
    return RAIA_OK;
}

static raia_status make_peers(struct wire *wire, const struct world *world)
{
    wire->world = *world;
    wire->world.node_first = NULL;
    RAIA_TRY(MEM_NEW(&wire->world.node_first, (size_t)world->nodes + 1));
    memcpy(wire->world.node_first, world->node_first,
           ((size_t)world->nodes + 1) * sizeof *world->node_first);
    RAIA_TRY(MEM_NEW(&wire->peers, (size_t)world->size));
    RAIA_TRY(MEM_NEW(&wire->sent, (size_t)world->nodes));
    RAIA_TRY(MEM_NEW(&wire->received, (size_t)world->nodes));
    RAIA_TRY(MEM_NEW(&wire->message_count, (size_t)world->nodes));
    for (int rank = 0; rank < world->size; rank++) {
        struct wire_peer *peer = &wire->peers[rank];
        peer->rank = rank;
        peer->node = world_node_of(world, rank);
        peer->remote = peer->node != world->node;
        peer->credits = WIRE_CREDITS;
        wire->remote += peer->remote;
    }
    return RAIA_OK;
}

raia_status wire_open(struct wire **out, struct control *control, const struct world *world,
                      const char *name, double timeout_s)
{
    RAIA_TRY(wire_check_name(name, world->nodes));
    struct wire *wire;
    RAIA_TRY(MEM_NEW(&wire, 1));
    wire->control = control;
    wire->timeout_ns = (uint64_t)(timeout_s * 1e9);
    raia_status status = make_peers(wire, world);
    if (status == RAIA_OK && world->nodes > 1)
        status = open_many(wire, name);
    if (status != RAIA_OK) {
        wire->status = status; /* nobody is said goodbye */
        wire_close(wire);
        return status;
    }
    *out = wire;
    return RAIA_OK;
}

void wire_close(struct wire *wire)
{
    if (wire->ep.ep != NULL && wire->status == RAIA_OK)
        message_part(wire);
    endpoint_stop(&wire->ep);
    for (int i = 0; i < wire->request_count; i++)
        if (wire->requests[i]->mr != NULL)
            fi_close(&wire->requests[i]->mr->fid);
    endpoint_close(&wire->ep);
    message_close(wire);
    pool_release(wire);
    free(wire->peers);
    free(wire->sent);
    free(wire->received);
    free(wire->message_count);
    free(wire->world.node_first);
    free(wire);
}

const char *wire_provider(const struct wire *wire)
{
    return wire->provider != NULL ? wire->provider->name : "shm";
}

/* ---- transfers ---- */

static raia_status check(const struct wire *wire)
{
    return wire->status == RAIA_OK ? RAIA_OK : fail(wire->status, "%s", wire->text);
}

raia_status wire_register(struct wire *wire, void *base, size_t bytes)
{
    return wire->ep.ep != NULL && bytes > 0 ? endpoint_keep(&wire->ep, base, bytes) : RAIA_OK;
}

static raia_status start(struct wire *wire, int rank, bool sending, uint64_t tag, void *data,
                         size_t len, struct wire_request **out)
{
    RAIA_TRY(check(wire));
    if (rank < 0 || rank >= wire->world.size || !wire->peers[rank].remote)
        return fail(RAIA_EBUG, "the wire reaches no rank %d: ranks of other nodes only", rank);
    if (wire->ep.info->ep_attr->max_msg_size < len)
        return fail(RAIA_EUNSUPPORTED, "a message of %zu bytes; %s takes at most %zu", len,
                    wire_provider(wire), wire->ep.info->ep_attr->max_msg_size);
    return flow_start(wire, &wire->peers[rank], sending, tag, data, len, out);
}

raia_status wire_send(struct wire *wire, int peer, uint64_t tag, const void *data, size_t len,
                      struct wire_request **out)
{
    union {
        const void *in;
        void *out;
    } buffer = { .in = data }; /* the flow only reads what it sends */
    return start(wire, peer, true, tag, buffer.out, len, out);
}

raia_status wire_recv(struct wire *wire, int peer, uint64_t tag, void *data, size_t len,
                      struct wire_request **out)
{
    return start(wire, peer, false, tag, data, len, out);
}

static raia_status fail_late(struct wire *wire, const struct wire_request *r)
{
    wire_break(wire, RAIA_ETIMEDOUT, "rank %d (node %d) did not %s %zu bytes (tag %llu) in %.0f s",
               r->peer->rank, r->peer->node, r->sending ? "take" : "send", r->len,
               (unsigned long long)r->tag, (double)wire->timeout_ns / 1e9);
    return check(wire);
}

static raia_status wait_done(struct wire *wire, const struct wire_request *r)
{
    uint64_t deadline = wire->timeout_ns != 0 ? clock_ns() + wire->timeout_ns : 0;
    flow_progress(wire, 0);
    while (!r->done) {
        RAIA_TRY(control_check(wire->control)); /* the driver's reason says most */
        RAIA_TRY(check(wire));
        if (deadline_left_ms(deadline) == 0)
            return fail_late(wire, r);
        flow_progress(wire, WIRE_TICK_MS);
    }
    return RAIA_OK;
}

raia_status wire_wait(struct wire *wire, struct wire_request *r)
{
    RAIA_TRY(wait_done(wire, r));
    raia_status status = RAIA_OK;
    if (r->refused)
        status = fail(RAIA_EBUG, "%zu bytes are %s rank %d, which %s %zu (tag %llu)", r->len,
                      r->sending ? "sent to" : "expected from", r->peer->rank,
                      r->sending ? "expects" : "sends", r->other_len, (unsigned long long)r->tag);
    flow_free(wire, r);
    return status;
}

bool wire_done(struct wire *wire, struct wire_request *r)
{
    if (!r->done)
        flow_progress(wire, 0);
    return r->done || wire->status != RAIA_OK;
}

void wire_progress(struct wire *wire)
{
    if (wire->active > 0)
        flow_progress(wire, 0);
}
