/* What the files of this room share. */
#ifndef RAIA_TRAIN_PRIV_H
#define RAIA_TRAIN_PRIV_H

#include "data/data.h"
#include "fabric/fabric.h"
#include "launch/launch.h"
#include "model/model.h"
#include "shard/shard.h"
#include "train/train.h"

#include <pthread.h>

/* A run's settings with every default filled in; borrowed strings. */
struct settings {
    raia_scaling scaling;
    raia_run run;
};

/* ---- a rank ---- */

struct raia_context {
    const struct settings *settings;
    struct world world;
    struct control *control;
    struct node *node;
    struct wire *wire;
    raia_comm *comm;
    struct device *device;
    /* Everything handed out, owned here, newest first. */
    raia_optimizer *optimizers;
    raia_model *models;
    raia_data *datas;
};

struct raia_model {
    raia_model *next;
    char *dir; /* NULL: random weights */
    struct model_config config;
    struct tree tree;
    raia_model_info info;
    enum precision precision;
    struct st_folder *weights; /* open from from_pretrained until they are read */
    struct shard *shard;
    struct decoder *decoder; /* made at the first batch, for the largest of all data */
    struct decoder_options sizes;
    bool in_step; /* between the first forward/backward and the update */
    bool nearest;
    uint64_t seed;
};

struct raia_optimizer {
    raia_optimizer *next;
    raia_model *model;
    struct shard_adamw adamw;
    uint64_t step; /* updates made */
    double grad_norm;
};

struct raia_batch {
    const uint32_t *tokens; /* [count, seq] */
    size_t count, seq;
    uint64_t global; /* samples of all ranks */
};

struct raia_data {
    raia_data *next;
    struct source source;
    struct sampler sampler;
    size_t seq;
    uint64_t step, first, count; /* this rank's share: places [first, first + count) */
    uint32_t *tokens;
    raia_batch batch;
};

void data_free(raia_data *data);
void model_free(raia_model *model);
/* The next step's samples from the beginning again. */
void data_rewind(raia_data *data);

/* Joins the run that the environment names, calls TRAIN, leaves. */
raia_status rank_run(raia_train_function *train, void *arg, const struct settings *settings);

/* ---- the driver ---- */

struct failure {
    raia_status status; /* RAIA_OK: none yet */
    int rank;           /* -1: not a rank's */
    char text[2048];
};

/* A model on its way to the driver's disk, one at a time. */
struct save {
    char *dir, *temp; /* NULL when none is under way */
    char nonce[40];
};
raia_status save_chunk(struct save *save, const char *name, uint64_t offset, const void *data,
                       size_t len);
/* Removes what was not brought to its end. */
void save_abandon(struct save *save);

/* Where reports go. Called under the driver's lock. */
struct reports {
    const struct settings *settings;
    FILE *file;
    uint64_t steps;    /* reports with a step so far */
    double shown_s;    /* when the last progress line was written */
    char pending[512]; /* a line that was held back */
};
raia_status reports_open(struct reports *reports, const struct settings *settings);
void reports_add(struct reports *reports, const json_t *values);
/* One JSON object to stdout (with --json) and the report file. */
void reports_event(struct reports *reports, const json_t *event);
void reports_flush(struct reports *reports);
void reports_close(struct reports *reports);

struct driver {
    const struct settings *settings;
    pthread_mutex_t lock; /* over everything below: the control server has a thread of its own */
    struct failure first;
    struct reports reports;
    struct save save;
    json_t *before, *after; /* evidence by rank; null where none came */
    int size, nodes;
    char host[256], reach[256];
    struct control_server *server;
    struct launch *launch;
};
/* Runs the ranks to their end; the failure is the first cause. */
raia_status driver_run(const struct settings *settings);
/* The control channel's callbacks. */
struct control_callbacks driver_callbacks(struct driver *driver);
/* Keeps FAILURE if it tells more than what is kept: a rank that failed only because another did
 * never hides that other. */
void driver_fail(struct driver *driver, int rank, raia_status status, const char *text);
raia_status driver_verdict(struct driver *driver, json_t **out);

#endif
