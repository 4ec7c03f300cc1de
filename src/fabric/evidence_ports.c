/* Where the bytes went, and whether the kernel counted them there. */
#include "fabric/evidence_priv.h"

#include <stdlib.h>
#include <string.h>

/* A port passes when  known <= counted <= known + tolerance,  with
 *
 *     known     = payload that raia sent there + the control channel's bytes there
 *     tolerance = known / 10 + 512 * messages + 32 KiB + 16 KiB * seconds
 *
 * known / 10: TCP, IP and Ethernet headers are 66 bytes for each 1448 of payload (4.6 %), and the
 * other direction's acknowledgements, which leave by the same port, 66 for each 2896 (2.3 %).
 * 512 a message: libfabric's header, and the small messages that announce and end a transfer.
 * The rest: what a quiet machine's other programs send (heartbeats, logs, name lookups).
 *
 * More than that is other traffic, among which raia's could hide: inconclusive. Less than known
 * means that bytes took another way: fail. The count also proves nothing when it could have come
 * about without the payload, that is when tolerance >= payload: inconclusive, unless it fails. */
enum { BYTES_A_MESSAGE = 512, BYTES_BASE = 32 << 10, BYTES_A_SECOND = 16 << 10 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static uint64_t number_of(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

/* How much the number under KEY has grown. */
static uint64_t grown(const json_t *before, const json_t *after, const char *key)
{
    uint64_t first = number_of(before, key), last = number_of(after, key);
    return last > first ? last - first : 0;
}

static uint64_t grown_for(const struct facts *facts, int rank, const char *what, int node)
{
    char key[16];
    snprintf(key, sizeof key, "%d", node);
    const struct rank_facts *r = &facts->rank[rank];
    return grown(json_object_get(r->before, what), json_object_get(r->after, what), key);
}

uint64_t facts_sent(const struct facts *facts, int rank, int node)
{
    return grown_for(facts, rank, "sent", node);
}

/* ---- reading ---- */

static raia_status read_rank(struct facts *facts, int rank)
{
    struct rank_facts *r = &facts->rank[rank];
    int64_t node;
    RAIA_TRY(json_get_i64(r->before, "evidence", "node", 0, INT32_MAX, &node));
    RAIA_TRY(json_get_string(r->before, "evidence", "boot_id", &r->boot));
    RAIA_TRY(json_get_string(r->before, "evidence", "netns", &r->netns));
    RAIA_TRY(json_get_string(r->after, "evidence", "fabric", &r->fabric));
    RAIA_TRY(json_get_string(r->after, "evidence", "provider", &r->provider));
    if (node >= facts->size)
        return fail(RAIA_EFORMAT, "evidence of rank %d: node %lld of %d ranks", rank,
                    (long long)node, facts->size);
    r->node = (int)node;
    r->near = r->far = -1;
    if (r->node >= facts->nodes)
        facts->nodes = r->node + 1;
    return RAIA_OK;
}

raia_status facts_read(const json_t *before, const json_t *after, struct facts *out)
{
    *out = (struct facts){ .size = (int)json_array_size(before) };
    if (out->size == 0 || json_array_size(after) != (size_t)out->size)
        return fail(RAIA_EFORMAT, "evidence of %d ranks before and %zu after", out->size,
                    json_array_size(after));
    RAIA_TRY(MEM_NEW(&out->rank, (size_t)out->size));
    for (int rank = 0; rank < out->size; rank++) {
        out->rank[rank].before = json_array_get(before, (size_t)rank);
        out->rank[rank].after = json_array_get(after, (size_t)rank);
        RAIA_TRY(read_rank(out, rank));
    }
    RAIA_TRY(MEM_NEW(&out->first_of, (size_t)out->nodes));
    for (int node = 0; node < out->nodes; node++)
        out->first_of[node] = -1;
    for (int rank = out->size - 1; rank >= 0; rank--)
        out->first_of[out->rank[rank].node] = rank;
    for (int node = 0; node < out->nodes; node++)
        if (out->first_of[node] < 0)
            return fail(RAIA_EFORMAT, "evidence of %d nodes, but of no rank of node %d", out->nodes,
                        node);
    return MEM_NEW(&out->port, 2 * (size_t)out->size);
}

void facts_release(struct facts *facts)
{
    free(facts->rank);
    free(facts->first_of);
    free(facts->port);
}

/* ---- finding ---- */

/* Bytes between ranks of one network namespace take the loopback, whatever their addresses. */
static bool near(const struct facts *facts, int rank, int node)
{
    const struct rank_facts *r = &facts->rank[rank];
    const struct rank_facts *other = &facts->rank[facts->first_of[node]];
    return strcmp(r->boot, other->boot) == 0 && strcmp(r->netns, other->netns) == 0;
}

static const char *device_of(const struct rank_facts *r)
{
    const json_t *endpoints = json_object_get(r->after, "endpoints");
    return text_of(json_array_get(endpoints, 0), "device");
}

int facts_port(const struct facts *facts, int rank, int node)
{
    const struct rank_facts *r = &facts->rank[rank];
    bool loops = near(facts, rank, node) && device_of(r)[0] == '\0';
    return loops ? r->near : r->far;
}

static int find_port(struct facts *facts, const struct port *wanted)
{
    for (int i = 0; i < facts->ports; i++) {
        struct port *p = &facts->port[i];
        if (strcmp(p->boot, wanted->boot) != 0 || strcmp(p->netns, wanted->netns) != 0 ||
            strcmp(p->name, wanted->name) != 0)
            continue;
        p->shared = p->shared || p->first_node != wanted->first_node;
        if (wanted->first_node < p->first_node)
            p->first_node = wanted->first_node;
        return i;
    }
    facts->port[facts->ports] = *wanted;
    return facts->ports++;
}

static int port_to(struct facts *facts, int rank, int node)
{
    const struct rank_facts *r = &facts->rank[rank];
    const char *device = device_of(r);
    const json_t *endpoint = json_array_get(json_object_get(r->after, "endpoints"), 0);
    struct port port = { .boot = r->boot, .netns = r->netns, .first_node = r->node };
    if (device[0] != '\0') {
        port.device = true;
        port.netns = "";
        port.name = device;
    } else {
        port.name = near(facts, rank, node) ? "lo" : text_of(endpoint, "interface");
    }
    return find_port(facts, &port);
}

static void add_traffic(struct facts *facts, int rank, int node)
{
    struct rank_facts *r = &facts->rank[rank];
    uint64_t sent = facts_sent(facts, rank, node);
    if (sent == 0)
        return;
    int *slot = near(facts, rank, node) && device_of(r)[0] == '\0' ? &r->near : &r->far;
    if (*slot < 0)
        *slot = port_to(facts, rank, node);
    facts->port[*slot].sent += sent;
    facts->port[*slot].messages += grown_for(facts, rank, "messages", node);
}

/* ---- counting ---- */

static const json_t *counter(const json_t *evidence, const struct port *p)
{
    const json_t *list = json_object_get(evidence, p->device ? "efa" : "interfaces");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        if (strcmp(text_of(item, p->device ? "device" : "name"), p->name) == 0)
            return item;
    }
    return NULL;
}

static bool sees(const struct rank_facts *r, const struct port *p)
{
    return strcmp(r->boot, p->boot) == 0 && (p->device || strcmp(r->netns, p->netns) == 0);
}

/* The earliest count before and the latest after hold all that lies between. */
static void add_counts(struct port *p, const struct rank_facts *r)
{
    const json_t *first = counter(r->before, p), *last = counter(r->after, p);
    if (!sees(r, p) || first == NULL || last == NULL)
        return;
    uint64_t first_tx = number_of(first, "tx"), last_tx = number_of(last, "tx");
    double seconds = json_real_value(json_object_get(r->after, "seconds")) -
                     json_real_value(json_object_get(r->before, "seconds"));
    p->first_tx = p->counted && p->first_tx < first_tx ? p->first_tx : first_tx;
    p->last_tx = p->last_tx > last_tx ? p->last_tx : last_tx;
    p->seconds = p->seconds > seconds ? p->seconds : seconds;
    p->counted = true;
}

static void add_control(struct port *p, const struct rank_facts *r)
{
    const json_t *before = json_object_get(r->before, "control");
    const json_t *after = json_object_get(r->after, "control");
    if (!p->device && sees(r, p) && strcmp(text_of(after, "interface"), p->name) == 0)
        p->control += grown(before, after, "bytes");
}

/* ---- judging ---- */

static void say(struct port *p, enum judgement judgement, const char *mend, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void say(struct port *p, enum judgement judgement, const char *mend, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(p->reason, sizeof p->reason, format, args);
    va_end(args);
    snprintf(p->mend, sizeof p->mend, "%s", mend);
    p->judgement = judgement;
}

static void judge(struct port *p)
{
    char known[16], found[16], more[16], allowed[16];
    p->known = p->sent + p->control;
    p->found = p->counted && p->last_tx > p->first_tx ? p->last_tx - p->first_tx : 0;
    p->tolerance = p->known / 10 + BYTES_A_MESSAGE * p->messages + BYTES_BASE +
                   (uint64_t)(BYTES_A_SECOND * (p->seconds > 0 ? p->seconds : 0));
    str_bytes(known, p->known);
    str_bytes(found, p->found);
    str_bytes(allowed, p->tolerance);
    str_bytes(more, p->found > p->known ? p->found - p->known : 0);
    if (!p->counted)
        say(p, JUDGED_INCONCLUSIVE, "see that the interface's counters can be read on every node",
            "the kernel keeps no count of %s on node %d", p->name, p->first_node);
    else if (p->last_tx < p->first_tx)
        say(p, JUDGED_INCONCLUSIVE, "do not reset the interface while raia runs",
            "the count of %s on node %d went backwards", p->name, p->first_node);
    else if (p->found < p->known)
        say(p, JUDGED_FAIL,
            "name the interface that reaches the other nodes in NCCL_SOCKET_IFNAME, or mend the "
            "routes",
            "raia sent %s over %s of node %d and the kernel counted %s there: bytes took another "
            "way",
            known, p->name, p->first_node, found);
    else if (p->tolerance >= p->sent)
        say(p, JUDGED_INCONCLUSIVE, "train for more steps",
            "raia sent %s over %s of node %d, too little to tell from the %s that others may send",
            str_bytes(known, p->sent), p->name, p->first_node, allowed);
    else if (p->found > p->known + p->tolerance)
        say(p, JUDGED_INCONCLUSIVE, "keep other programs off the interface while raia runs",
            "the kernel counted %s on %s of node %d, %s more than raia sent: others used it too",
            found, p->name, p->first_node, more);
}

void facts_judge_ports(struct facts *facts)
{
    for (int rank = 0; rank < facts->size; rank++)
        for (int node = 0; node < facts->nodes; node++)
            add_traffic(facts, rank, node);
    for (int i = 0; i < facts->ports; i++) {
        for (int rank = 0; rank < facts->size; rank++) {
            add_counts(&facts->port[i], &facts->rank[rank]);
            add_control(&facts->port[i], &facts->rank[rank]);
        }
        judge(&facts->port[i]);
    }
}
