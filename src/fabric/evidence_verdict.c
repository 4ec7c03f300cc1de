/* The verdict: each pair of nodes that exchanged bytes, and the whole. */
#include "fabric/evidence_priv.h"

#include <stdlib.h>
#include <string.h>

const char *judgement_name(enum judgement judgement)
{
    static const char *const names[] = { "pass", "inconclusive", "fail" };
    return names[judgement];
}

/* What the whole verdict comes to. */
struct outcome {
    const char *fabric;
    enum judgement judgement;
    const char *reason, *mend; /* MEND may be NULL */
};

static raia_status write_verdict(const struct outcome *outcome, const char *require, json_t *pairs,
                                 json_t **out)
{
    enum judgement judgement = outcome->judgement;
    if (require != NULL && judgement != JUDGED_PASS)
        judgement = JUDGED_FAIL;
    *out = json_pack("{s:s, s:s, s:s?, s:s, s:s*, s:o}", "fabric", outcome->fabric, "status",
                     judgement_name(judgement), "required", require, "reason", outcome->reason,
                     "mend", judgement != JUDGED_PASS ? outcome->mend : NULL, "pairs", pairs);
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

/* ---- one node ---- */

/* Ranks that shared memory were on one kernel: evidence that says otherwise is not believed. */
static struct outcome judge_one_node(const struct facts *facts, const char *require)
{
    for (int rank = 0; rank < facts->size; rank++)
        if (strcmp(facts->rank[rank].boot, facts->rank[0].boot) != 0 ||
            strcmp(facts->rank[rank].provider, "shm") != 0)
            return (struct outcome){ "shm", JUDGED_INCONCLUSIVE,
                                     "the ranks' evidence does not agree on one machine", NULL };
    if (require != NULL && strcmp(require, "shm") != 0)
        return (struct outcome){ "shm", JUDGED_FAIL,
                                 "all ranks ran on one node and met in shared memory: no byte "
                                 "crossed a wire",
                                 "run on more than one node, or require shm" };
    return (struct outcome){ "shm", JUDGED_PASS,
                             "all ranks ran on one node and met in shared memory", NULL };
}

/* ---- pairs ---- */

/* The ports that bytes between nodes A and B took, each once, and those bytes. */
struct pair {
    int a, b;
    uint64_t sent;
    bool *uses; /* [facts->ports] */
};

static void add_flow(const struct facts *facts, struct pair *pair, int rank, int node)
{
    uint64_t sent = facts_sent(facts, rank, node);
    int port = sent > 0 ? facts_port(facts, rank, node) : -1;
    if (port < 0)
        return;
    pair->sent += sent;
    pair->uses[port] = true;
}

static void fill_pair(const struct facts *facts, struct pair *pair)
{
    memset(pair->uses, 0, (size_t)facts->ports * sizeof *pair->uses);
    pair->sent = 0;
    for (int rank = 0; rank < facts->size; rank++) {
        int node = facts->rank[rank].node;
        if (node == pair->a || node == pair->b)
            add_flow(facts, pair, rank, pair->a + pair->b - node);
    }
}

static json_t *write_port(const struct port *p)
{
    return json_pack("{s:s, s:s, s:i, s:b, s:I, s:I, s:I, s:s}", p->device ? "device" : "name",
                     p->name, "boot_id", p->boot, "node", p->first_node, "shared", p->shared,
                     "carried", (json_int_t)p->known, "counted", (json_int_t)p->found, "tolerance",
                     (json_int_t)p->tolerance, "status", judgement_name(p->judgement));
}

static json_t *write_pair(const struct facts *facts, const struct pair *pair)
{
    uint64_t carried = 0, counted = 0, tolerance = 0;
    enum judgement worst = JUDGED_PASS;
    json_t *interfaces = json_array();
    for (int i = 0; i < facts->ports; i++) {
        const struct port *p = &facts->port[i];
        if (!pair->uses[i])
            continue;
        carried += p->known;
        counted += p->found;
        tolerance += p->tolerance;
        worst = p->judgement > worst ? p->judgement : worst;
        json_array_append_new(interfaces, write_port(p));
    }
    return json_pack("{s:[i,i], s:s, s:I, s:I, s:I, s:o, s:I, s:s}", "nodes", pair->a, pair->b,
                     "provider", facts->rank[facts->first_of[pair->a]].provider, "sent",
                     (json_int_t)pair->sent, "carried", (json_int_t)carried, "counted",
                     (json_int_t)counted, "interfaces", interfaces, "tolerance",
                     (json_int_t)tolerance, "status", judgement_name(worst));
}

static raia_status write_pairs(const struct facts *facts, json_t **out)
{
    struct pair pair;
    RAIA_TRY(MEM_NEW(&pair.uses, (size_t)facts->ports + 1));
    *out = json_array();
    for (pair.a = 0; pair.a < facts->nodes; pair.a++)
        for (pair.b = pair.a + 1; pair.b < facts->nodes; pair.b++) {
            fill_pair(facts, &pair);
            if (pair.sent > 0)
                json_array_append_new(*out, write_pair(facts, &pair));
        }
    free(pair.uses);
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory");
}

/* ---- the whole ---- */

static bool is_met(const char *require, const struct rank_facts *r)
{
    return require == NULL || strcmp(require, r->fabric) == 0 || strcmp(require, r->provider) == 0;
}

/* TEXT holds what the reason needs of its own. */
static struct outcome judge_nodes(const struct facts *facts, const char *require, char text[256])
{
    const struct rank_facts *first = &facts->rank[0];
    struct outcome outcome = { first->fabric, JUDGED_PASS, text, NULL };
    snprintf(text, 256, "the kernel counted every byte that raia sent between %d nodes",
             facts->nodes);
    for (int rank = 0; rank < facts->size; rank++) {
        const struct rank_facts *r = &facts->rank[rank];
        if (strcmp(r->provider, first->provider) == 0 && is_met(require, r))
            continue;
        if (is_met(require, r))
            snprintf(text, 256, "rank 0 opened %s and rank %d %s", first->provider, rank,
                     r->provider);
        else
            snprintf(text, 256, "the endpoints of rank %d opened %s (libfabric's %s)", rank,
                     r->fabric, r->provider);
        outcome.judgement = JUDGED_FAIL;
        outcome.mend = "give the fabric by its name (--fabric), and see that every node has it";
        return outcome;
    }
    if (facts->ports == 0) {
        outcome.judgement = JUDGED_INCONCLUSIVE;
        outcome.reason = "no byte crossed between the nodes";
    }
    for (int i = 0; i < facts->ports; i++)
        if (facts->port[i].judgement > outcome.judgement)
            outcome = (struct outcome){ first->fabric, facts->port[i].judgement,
                                        facts->port[i].reason, facts->port[i].mend };
    return outcome;
}

static raia_status judge(struct facts *facts, const char *require, json_t **out)
{
    char text[256];
    json_t *pairs;
    struct outcome outcome;
    if (facts->nodes == 1) {
        outcome = judge_one_node(facts, require);
        return write_verdict(&outcome, require, json_array(), out);
    }
    facts_judge_ports(facts);
    RAIA_TRY(write_pairs(facts, &pairs));
    outcome = judge_nodes(facts, require, text);
    return write_verdict(&outcome, require, pairs, out);
}

raia_status evidence_verdict(const json_t *before, const json_t *after, const char *require,
                             json_t **out)
{
    struct facts facts;
    raia_status status = facts_read(before, after, &facts);
    if (status == RAIA_OK)
        status = judge(&facts, require, out);
    facts_release(&facts);
    return status;
}
