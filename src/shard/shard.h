/* shard: FSDP. A wrap policy makes modules into units; a unit's parameters lie in one flat buffer
 * of which every rank owns one slice of parameters, gradients and optimizer state; a schedule fixed
 * before step 0 says when each unit is gathered, used, released and reduced. Implements the
 * decoder's param_store. */
#ifndef RAIA_SHARD_H
#define RAIA_SHARD_H

#include "comm/comm.h"
#include "model/model.h"

enum shard_strategy { SHARD_FULL, SHARD_GRAD, SHARD_NONE };
enum wrap_policy { WRAP_SIZE, WRAP_BLOCK };
enum precision { PRECISION_F32, PRECISION_BF16, PRECISION_MIXED };

/* Words of the command line; RAIA_EINVAL lists them. */
raia_status shard_parse_strategy(const char *text, enum shard_strategy *out);
raia_status shard_parse_wrap(const char *text, enum wrap_policy *out);
raia_status shard_parse_precision(const char *text, enum precision *out);

/* ---- units ---- */

struct unit {
    int module; /* the module that is wrapped; the root holds what is left */
    int *param; /* parameters in tree order */
    int params;
    uint64_t count; /* elements, without padding */
};
struct unit_list {
    struct unit *unit; /* in pre-order of their modules; a root that has nothing left is none */
    int units;
    int *unit_of; /* [params] */
};
/* PyTorch's size_based_auto_wrap_policy to the letter (children first), or one unit for each
 * decoder layer with embedding and head apart. */
raia_status units_build(const struct tree *tree, enum wrap_policy policy, uint64_t min_params,
                        struct unit_list *out);
void units_release(struct unit_list *units);

/* ---- the engine ---- */

struct shard_options {
    enum shard_strategy strategy;
    enum wrap_policy wrap;
    uint64_t min_unit_params; /* for WRAP_SIZE; default 10,000,000 */
    enum precision precision;
    bool reduce_f32;        /* gradients cross nodes in f32 */
    size_t prefetch;        /* units gathered ahead; default 1 */
    size_t row_block_bytes; /* largest gradient block of a vocabulary weight (0: 32 MiB) */
};
struct shard_adamw {
    double lr, beta1, beta2, eps, weight_decay, grad_clip; /* grad_clip 0: none */
    bool stochastic;
    uint64_t seed;
};
struct shard;
/* Lays out and allocates everything. Collective. Borrows device, comm and tree. */
raia_status shard_new(struct shard **out, struct device *device, raia_comm *comm,
                      const struct tree *tree, const struct shard_options *options);
void shard_free(struct shard *shard);
struct param_store *shard_store(struct shard *shard);
/* Called once between decoder_new (whose dry run recorded the module order) and the first step:
 * fixes the schedule. */
raia_status shard_plan_end(struct shard *shard);

/* Each rank reads only its own slices from FOLDER, or makes them from SEED (init of the model). */
raia_status shard_load(struct shard *shard, const struct st_folder *folder);
raia_status shard_init(struct shard *shard, const struct model_config *config, uint64_t seed);
/* Calls WRITE for each contiguous piece of a parameter that this rank owns, in DTYPE, in bounded
 * pieces. */
typedef raia_status shard_piece(void *self, int param, uint64_t first, size_t count,
                                const void *data);
raia_status shard_export(struct shard *shard, raia_dtype dtype, shard_piece *write, void *self);

/* A step is: shard_step_begin, decoder_forward_backward (once, or several times to accumulate),
 * shard_step_end. */
raia_status shard_step_begin(struct shard *shard);
/* Norm of all gradients before clipping (f64), clipping, AdamW on this rank's slices. STEP is 1 for
 * the first update. */
raia_status shard_step_end(struct shard *shard, const struct shard_adamw *adamw, uint64_t step,
                           double *grad_norm);
/* An evaluation pass: decoder_loss between these. */
raia_status shard_eval_begin(struct shard *shard);
raia_status shard_eval_end(struct shard *shard);

/* Bytes by the formulas, before allocating: what a rank holds steadily (proportional: a node's
 * shared memory divided by its ranks) and at its peak, and what a step sends off a node. */
struct shard_bytes {
    uint64_t weights, gradients, state; /* steady, proportional */
    uint64_t gathered, transient;       /* buffers for units in flight, gradients in flight */
    uint64_t wire_out;                  /* payload that leaves this node each step */
};
raia_status shard_measure(const struct tree *tree, const struct unit_list *units,
                          const struct shard_options *options, const struct world *world,
                          struct shard_bytes *out);

#endif
