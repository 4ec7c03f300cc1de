/* evidence_priv: the inside of the verdict.
 *
 * A port is one interface of one network namespace, or one RDMA device of one machine: the place
 * where the kernel counts. Ranks and nodes that share it are counted there once, together. */
#ifndef RAIA_FABRIC_EVIDENCE_PRIV_H
#define RAIA_FABRIC_EVIDENCE_PRIV_H

#include "fabric/fabric.h"

enum judgement { JUDGED_PASS, JUDGED_INCONCLUSIVE, JUDGED_FAIL };
const char *judgement_name(enum judgement judgement);

struct port {
    const char *boot, *netns; /* netns: "" of a device */
    const char *name;
    bool device;
    int first_node;             /* the lowest that uses it, */
    bool shared;                /* and whether another does too */
    uint64_t sent, control;     /* payload bytes that raia is known to have sent there */
    uint64_t messages;          /* that the payload went in */
    double seconds;             /* from the first count to the last */
    uint64_t first_tx, last_tx; /* counted; valid when counted is true */
    bool counted;
    uint64_t known, found, tolerance;
    enum judgement judgement;
    char reason[256], mend[192];
};

/* What a rank's evidence says, borrowed from it. */
struct rank_facts {
    const json_t *before, *after;
    int node;
    const char *boot, *netns, *fabric, *provider;
    int near, far; /* its ports: to nodes that share its namespace, and to all others; -1: unused */
};

struct facts {
    int size, nodes;
    struct rank_facts *rank; /* [size] */
    int *first_of;           /* [nodes] the lowest rank of the node */
    struct port *port;
    int ports;
};

/* RAIA_EFORMAT when the evidence is not what evidence_take makes. */
raia_status facts_read(const json_t *before, const json_t *after, struct facts *out);
void facts_release(struct facts *facts);
/* Payload bytes that RANK sent to NODE between the two. */
uint64_t facts_sent(const struct facts *facts, int rank, int node);
/* The port that RANK's bytes to NODE take. */
int facts_port(const struct facts *facts, int rank, int node);
/* Finds all ports that bytes took and judges each. */
void facts_judge_ports(struct facts *facts);

#endif
