/* raia: train a model on many machines from one C file.
 *
 * A program describes what one worker does in a train function and hands it to raia_fit(). Run by
 * hand, raia_fit() starts the workers (ranks) on this machine; run as a cluster's job, on the
 * cluster's workers. Each rank is the same program started again, in which raia_fit() calls the
 * train function and does not return to the code after it.
 *
 * Everything that a raia_context hands out (models, optimizers, data, batches) belongs to the
 * context and ends with the train function. Functions are called from the train function's thread,
 * by all ranks, in the same order. See types.h for errors. */
#ifndef RAIA_RAIA_H
#define RAIA_RAIA_H

#include <raia/comm.h>
#include <raia/model.h>
#include <raia/types.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct raia_context raia_context; /* a rank's place in the run */
typedef struct raia_model raia_model;
typedef struct raia_optimizer raia_optimizer;
typedef struct raia_data raia_data;
typedef struct raia_batch raia_batch;

typedef raia_status raia_train_function(raia_context *context, void *arg);

enum { RAIA_ALL = -1 };
typedef enum raia_use_gpu { RAIA_IF_ANY, RAIA_NO_GPU, RAIA_GPU } raia_use_gpu;

typedef struct raia_scaling {
    int num_workers; /* ranks; RAIA_ALL: every worker of the cluster (one rank on this machine
                        alone) */
    int num_nodes;   /* on this machine alone: pretend that many nodes (0: 1) */
    raia_use_gpu use_gpu;
    double pending_s; /* in a cluster: how long to wait for room (0: 600 s) */
} raia_scaling;

typedef struct raia_run {
    const char *name;           /* NULL: "raia" */
    const char *fabric;         /* NULL: "auto"; else efa, verbs, tcp, shm */
    const char *require_fabric; /* the run fails (exit code 3) unless the wire is proven to be this;
                                   NULL: RAIA_REQUIRE_FABRIC */
    const char *report_file;    /* JSON lines of all reports; NULL: none */
    int json;                   /* the same lines on stdout, and nothing else there */
    double timeout_s;           /* bound of every wait of a rank for another (0: 300 s) */
    int total_steps;            /* for the progress line; 0: not known */
} raia_run;

/* Runs TRAIN on every rank with ARG (each rank builds its own from the command line, since the
 * program starts again). Prints progress and the fabric verdict to stderr. Returns the exit code
 * for main: 0, or raia_exit_code() of the first cause. SCALING and RUN may be NULL. */
RAIA_API int raia_fit(raia_train_function *train, void *arg, const raia_scaling *scaling,
                      const raia_run *run);

/* ---- where am I ---- */

RAIA_API int raia_rank(const raia_context *context);
RAIA_API int raia_world_size(const raia_context *context);
RAIA_API int raia_local_rank(const raia_context *context);
RAIA_API int raia_local_world_size(const raia_context *context);
RAIA_API int raia_node_rank(const raia_context *context);
RAIA_API int raia_num_nodes(const raia_context *context);
RAIA_API const char *raia_device(const raia_context *context); /* "cpu" */
RAIA_API raia_comm *raia_context_comm(raia_context *context);

/* ---- model ---- */

typedef enum raia_precision {
    RAIA_PRECISION_F32,
    RAIA_PRECISION_BF16,
    RAIA_PRECISION_MIXED
} raia_precision;

/* ID: a folder with config.json and safetensors, a hub id that the local cache holds, or
 * "preset:NAME" for a random model that no folder holds. Only the shape is read here; weights come
 * with raia_prepare_model. */
RAIA_API raia_status raia_model_from_pretrained(raia_context *context, const char *id,
                                                raia_precision precision, raia_model **out);

typedef enum raia_strategy { RAIA_FULL_SHARD, RAIA_SHARD_GRAD, RAIA_NO_SHARD } raia_strategy;
typedef enum raia_wrap { RAIA_WRAP_SIZE, RAIA_WRAP_BLOCK } raia_wrap;
typedef struct raia_fsdp {
    raia_strategy strategy;
    raia_wrap wrap;
    uint64_t min_num_params; /* for RAIA_WRAP_SIZE; 0: 10,000,000 */
    int reduce_f32;          /* gradients cross nodes in f32 */
    int nearest;             /* bf16 state is rounded to nearest instead of stochastically */
    uint64_t seed;           /* of random weights and stochastic rounding */
} raia_fsdp;
/* Shards MODEL over all ranks and reads each rank's slices of its weights. FSDP may be NULL. */
RAIA_API raia_status raia_prepare_model(raia_context *context, raia_model *model,
                                        const raia_fsdp *fsdp);
RAIA_API const raia_model_info *raia_model_get_info(const raia_model *model);

/* Writes the model as a Hugging Face folder at DIR on the driver's node, which must not hold one
 * yet; ranks of other nodes send their slices there. Tokenizer and other small files of the model's
 * folder go along. */
RAIA_API raia_status raia_model_save(raia_context *context, raia_model *model, const char *dir);

/* ---- optimizer ---- */

typedef struct raia_adamw_config {
    double lr;           /* 0: 1e-3 */
    double beta1, beta2; /* 0: 0.9, 0.999 */
    double eps;          /* 0: 1e-8 */
    double weight_decay; /* as given: 0 is none (torch's default is 0.01) */
    double grad_clip;    /* 0: none; else the largest norm of all gradients */
} raia_adamw_config;
RAIA_API raia_status raia_adamw(raia_context *context, raia_model *model,
                                const raia_adamw_config *config, raia_optimizer **out);
RAIA_API void raia_set_lr(raia_optimizer *optimizer, double lr);

/* Averages nothing: gradients are those of the mean loss of the global batch. One update. */
RAIA_API raia_status raia_optimizer_step(raia_context *context, raia_optimizer *optimizer);
RAIA_API double
raia_grad_norm(const raia_optimizer *optimizer); /* of the last step, before clipping */

/* ---- data ---- */

typedef struct raia_data_config {
    size_t seq_len;      /* tokens a sample (0: 128) */
    size_t batch_size;   /* samples a rank and step; or */
    size_t global_batch; /* samples of all ranks a step, split as evenly as whole samples allow */
    uint64_t seed;       /* of random data and shuffling */
    int shuffle;
    uint64_t epochs; /* times through the data (0: 1) */
} raia_data_config;
/* SOURCE: "random", FILE.bin (little-endian uint32 tokens), or a file or folder of text, read as
 * bytes. */
RAIA_API raia_status raia_data_open(raia_context *context, const raia_model *model,
                                    const char *source, const raia_data_config *config,
                                    raia_data **out);
RAIA_API uint64_t
raia_data_steps(const raia_data *data); /* steps that it holds; UINT64_MAX: no end */
RAIA_API uint64_t raia_data_global_batch(const raia_data *data); /* samples of all ranks a step */
/* This rank's samples of the next step; RAIA_ENOTFOUND at the end of the data. Valid until the next
 * call. */
RAIA_API raia_status raia_next_batch(raia_context *context, raia_data *data, raia_batch **out);

/* ---- the step ---- */

/* Mean cross-entropy of the next tokens over the global batch, before the update; and its
 * gradients. */
RAIA_API raia_status raia_forward_backward(raia_context *context, raia_model *model,
                                           const raia_batch *batch, float *loss);
/* Mean loss over all of DATA, or its first MAX_STEPS steps (0: all); DATA starts again from its
 * beginning. */
RAIA_API raia_status raia_evaluate(raia_context *context, raia_model *model, raia_data *data,
                                   uint64_t max_steps, float *loss);

/* ---- report ---- */

typedef struct raia_value {
    const char *key;
    double value;
} raia_value;
/* raia_report(context, "step", step, "loss", loss): up to 8 pairs of a name and a number. Rank 0's
 * reports reach the driver, the job's log and the report file; the other ranks' are checked and
 * dropped. */
#define raia_report(context, ...)                                                                  \
    raia_report_values((context), (const raia_value[]){ RAIA_PAIRS(__VA_ARGS__) },                 \
                       sizeof((const raia_value[]){ RAIA_PAIRS(__VA_ARGS__) }) /                   \
                           sizeof(raia_value))
RAIA_API raia_status raia_report_values(raia_context *context, const raia_value *values,
                                        size_t count);

#define RAIA_PAIRS(...)                                                                            \
    RAIA_PAIRS_N(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1)(__VA_ARGS__)
#define RAIA_PAIRS_N(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, count, ...) RAIA_PAIRS_##count
#define RAIA_PAIRS_2(k, v)                                                                         \
    {                                                                                              \
        (k), (double)(v)                                                                           \
    }
#define RAIA_PAIRS_4(k, v, ...) { (k), (double)(v) }, RAIA_PAIRS_2(__VA_ARGS__)
#define RAIA_PAIRS_6(k, v, ...) { (k), (double)(v) }, RAIA_PAIRS_4(__VA_ARGS__)
#define RAIA_PAIRS_8(k, v, ...) { (k), (double)(v) }, RAIA_PAIRS_6(__VA_ARGS__)
#define RAIA_PAIRS_10(k, v, ...) { (k), (double)(v) }, RAIA_PAIRS_8(__VA_ARGS__)
#define RAIA_PAIRS_12(k, v, ...) { (k), (double)(v) }, RAIA_PAIRS_10(__VA_ARGS__)
#define RAIA_PAIRS_14(k, v, ...) { (k), (double)(v) }, RAIA_PAIRS_12(__VA_ARGS__)
#define RAIA_PAIRS_16(k, v, ...) { (k), (double)(v) }, RAIA_PAIRS_14(__VA_ARGS__)

#ifdef __cplusplus
}
#endif
#endif
