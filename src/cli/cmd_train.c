/* raia train: the built-in train function. It stands on include/raia/raia.h alone, as a user's own
 * program does. */
#include "cli/cli.h"
#include "train/train.h"

#include <stdlib.h>
#include <string.h>

static struct {
    const char *model, *data, *eval_data, *output, *betas, *dtype, *rounding, *strategy, *wrap;
    const char *fabric, *require_fabric, *report_file, *name;
    int64_t steps, batch, global_batch, seq_len, epochs, workers, nodes, seed, min_unit, eval_steps;
    double lr, weight_decay, eps, grad_clip, timeout_s, pending_s;
    bool shuffle, json, reduce_f32;
} o = {
    .data = "random",
    .betas = "0.9,0.999",
    .dtype = "f32",
    .rounding = "stochastic",
    .strategy = "full",
    .wrap = "size",
    .fabric = "auto",
    .name = "train",
    .seq_len = 128,
    .epochs = 1,
    .min_unit = 10000000,
    .lr = 1e-3,
    .weight_decay = 0.01,
    .eps = 1e-8,
    .timeout_s = 300,
    .pending_s = 600,
};

#define TEXT(NAME, FIELD, ARG, HELP)                                                               \
    {                                                                                              \
        .type = OPT_STRING, .name = NAME, .value = &o.FIELD, .arg = ARG, .help = HELP              \
    }
#define WORD(NAME, FIELD, CHOICES, HELP)                                                           \
    {                                                                                              \
        .type = OPT_CHOICE, .name = NAME, .value = &o.FIELD, .choices = CHOICES, .help = HELP      \
    }
#define WHOLE(NAME, FIELD, MIN, HELP)                                                              \
    {                                                                                              \
        .type = OPT_I64, .name = NAME, .value = &o.FIELD, .arg = "N", .help = HELP, .min = MIN,    \
        .max = INT32_MAX                                                                           \
    }
#define REAL(NAME, FIELD, HELP)                                                                    \
    {                                                                                              \
        .type = OPT_F64, .name = NAME, .value = &o.FIELD, .arg = "X", .help = HELP                 \
    }
#define FLAG(NAME, FIELD, HELP)                                                                    \
    {                                                                                              \
        .type = OPT_FLAG, .name = NAME, .value = &o.FIELD, .help = HELP                            \
    }

static const struct opt opts[] = {
    TEXT("model", model, "DIR|ID", "model folder, cached hub id, or preset:NAME (random weights)"),
    TEXT("data", data, "SOURCE", "random, FILE.bin (uint32 tokens), a text file or folder (bytes)"),
    WHOLE("steps", steps, 0, "updates to make; 0 goes through the data --epochs times"),
    WHOLE("epochs", epochs, 1, "times through the data"),
    WHOLE("batch-size", batch, 0, "samples a rank and step (1 unless --global-batch-size)"),
    WHOLE("global-batch-size", global_batch, 0, "samples of all ranks a step"),
    WHOLE("seq-len", seq_len, 2, "tokens a sample"),
    FLAG("shuffle", shuffle, "take samples in a seeded random order"),
    REAL("lr", lr, "learning rate"),
    REAL("weight-decay", weight_decay, "AdamW's decoupled weight decay"),
    TEXT("betas", betas, "A,B", "AdamW's betas"),
    REAL("eps", eps, "AdamW's epsilon"),
    REAL("grad-clip", grad_clip, "largest norm of all gradients; 0: none"),
    WORD("dtype", dtype, "f32|bf16|mixed", "weights, gradients and state; mixed: f32 masters"),
    WORD("rounding", rounding, "stochastic|nearest", "of bf16 weights and state"),
    WORD("fsdp", strategy, "full|grad|none", "what is sharded (ZeRO-3, ZeRO-2, nothing)"),
    WORD("wrap", wrap, "size|block", "units by size, as PyTorch does, or by decoder layer"),
    WHOLE("min-unit-params", min_unit, 1, "least parameters of a unit with --wrap size"),
    FLAG("reduce-f32", reduce_f32, "gradients cross nodes in f32"),
    WHOLE("workers", workers, 0, "ranks; 0: all of the cluster, or one on this machine"),
    WHOLE("nodes", nodes, 0, "without a cluster: pretend that many nodes"),
    WORD("fabric", fabric, "auto|efa|verbs|tcp|shm", "between nodes"),
    TEXT("require-fabric", require_fabric, "NAME", "fail (exit 3) unless the wire is proven"),
    WHOLE("seed", seed, 0, "of random data, weights, shuffling and rounding"),
    TEXT("output", output, "DIR", "write the trained model here"),
    TEXT("eval-data", eval_data, "SOURCE", "report the loss on this before and after training"),
    WHOLE("eval-steps", eval_steps, 0, "steps of --eval-data; 0: all"),
    TEXT("report-file", report_file, "FILE", "all reports as JSON lines"),
    FLAG("json", json, "JSON lines on stdout, everything else on stderr"),
    TEXT("name", name, "NAME", "of the run, in its messages"),
    REAL("timeout", timeout_s, "seconds that a rank waits for another"),
    REAL("pending", pending_s, "seconds to wait for room in a cluster"),
    { .name = NULL },
};

static const struct opt_spec spec = {
    .usage = "raia train --model DIR [options]",
    .summary = "Trains a Hugging Face model with FSDP over all workers of the cluster, or of this "
               "machine,\nand ends with a table that shows which wire the bytes took.",
    .opts = opts,
    .examples =
        "  raia model init --preset tiny /tmp/tiny\n"
        "  raia train --model /tmp/tiny --data book.txt --steps 20 --workers 4 --output out\n"
        "  raia train --model /tmp/tiny --steps 10 --workers 8 --nodes 2 --require-fabric tcp\n",
};

const struct opt_spec *cmd_train_spec(void)
{
    return &spec;
}

static raia_precision precision(void)
{
    return strcmp(o.dtype, "f32") == 0    ? RAIA_PRECISION_F32
           : strcmp(o.dtype, "bf16") == 0 ? RAIA_PRECISION_BF16
                                          : RAIA_PRECISION_MIXED;
}

static raia_fsdp fsdp(void)
{
    return (raia_fsdp){
        .strategy = strcmp(o.strategy, "full") == 0   ? RAIA_FULL_SHARD
                    : strcmp(o.strategy, "grad") == 0 ? RAIA_SHARD_GRAD
                                                      : RAIA_NO_SHARD,
        .wrap = strcmp(o.wrap, "block") == 0 ? RAIA_WRAP_BLOCK : RAIA_WRAP_SIZE,
        .min_num_params = (uint64_t)o.min_unit,
        .reduce_f32 = o.reduce_f32,
        .nearest = strcmp(o.rounding, "nearest") == 0,
        .seed = (uint64_t)o.seed,
    };
}

static raia_status adamw(raia_adamw_config *out)
{
    char *end;
    *out = (raia_adamw_config){
        .lr = o.lr, .eps = o.eps, .weight_decay = o.weight_decay, .grad_clip = o.grad_clip
    };
    out->beta1 = strtod(o.betas, &end);
    if (*end == ',')
        out->beta2 = strtod(end + 1, &end);
    if (*end != '\0' || !(out->beta1 > 0 && out->beta1 < 1 && out->beta2 > 0 && out->beta2 < 1))
        return fail(RAIA_EINVAL, "--betas %s: two numbers between 0 and 1, as 0.9,0.999", o.betas);
    return RAIA_OK;
}

static raia_status open_data(raia_context *ctx, raia_model *model, const char *source,
                             raia_data **out)
{
    const raia_data_config config = { .seq_len = (size_t)o.seq_len,
                                      .batch_size = (size_t)o.batch,
                                      .global_batch = (size_t)o.global_batch,
                                      .seed = (uint64_t)o.seed,
                                      .shuffle = o.shuffle,
                                      .epochs = source == o.data ? (uint64_t)o.epochs : 1 };
    return raia_data_open(ctx, model, source, &config, out);
}

static raia_status evaluate(raia_context *ctx, raia_model *model, raia_data *data)
{
    float loss;
    if (data == NULL)
        return RAIA_OK;
    RAIA_TRY(raia_evaluate(ctx, model, data, (uint64_t)o.eval_steps, &loss));
    return raia_report(ctx, "eval_loss", loss);
}

static raia_status count_steps(const raia_data *data, uint64_t *steps)
{
    uint64_t held = raia_data_steps(data);
    if (o.steps == 0 && held == UINT64_MAX)
        return fail(RAIA_EINVAL, "--data %s has no end: give --steps", o.data);
    if (o.steps > 0 && (uint64_t)o.steps > held)
        return fail(RAIA_EINVAL,
                    "--steps %lld: %s holds %llu steps in %lld epoch(s); give fewer steps, more "
                    "--epochs or more data",
                    (long long)o.steps, o.data, (unsigned long long)held, (long long)o.epochs);
    *steps = o.steps > 0 ? (uint64_t)o.steps : held;
    return RAIA_OK;
}

static raia_status one_step(raia_context *ctx, raia_model *model, raia_optimizer *optimizer,
                            raia_data *data, uint64_t step)
{
    raia_batch *batch;
    float loss;
    double start = clock_s();
    RAIA_TRY(raia_next_batch(ctx, data, &batch));
    RAIA_TRY(raia_forward_backward(ctx, model, batch, &loss));
    RAIA_TRY(raia_optimizer_step(ctx, optimizer));
    double tokens = (double)raia_data_global_batch(data) * (double)o.seq_len;
    return raia_report(ctx, "step", step, "loss", loss, "grad_norm", raia_grad_norm(optimizer),
                       "lr", o.lr, "tokens_per_s", tokens / (clock_s() - start));
}

static raia_status train(raia_context *ctx, void *arg)
{
    (void)arg;
    raia_model *model;
    raia_data *data, *held_back = NULL;
    raia_optimizer *optimizer;
    raia_adamw_config config;
    uint64_t steps = 0;
    const raia_fsdp shards = fsdp();
    RAIA_TRY(adamw(&config));
    RAIA_TRY(raia_model_from_pretrained(ctx, o.model, precision(), &model));
    RAIA_TRY(open_data(ctx, model, o.data, &data));
    RAIA_TRY(count_steps(data, &steps));
    if (o.eval_data != NULL)
        RAIA_TRY(open_data(ctx, model, o.eval_data, &held_back));
    RAIA_TRY(raia_prepare_model(ctx, model, &shards));
    RAIA_TRY(raia_adamw(ctx, model, &config, &optimizer));
    RAIA_TRY(evaluate(ctx, model, held_back));
    for (uint64_t step = 0; step < steps; step++)
        RAIA_TRY(one_step(ctx, model, optimizer, data, step));
    RAIA_TRY(evaluate(ctx, model, held_back));
    if (o.output != NULL)
        RAIA_TRY(raia_model_save(ctx, model, o.output));
    return RAIA_OK;
}

static raia_status check(int count)
{
    raia_adamw_config config;
    if (count > 0)
        return fail(RAIA_EINVAL, "raia train takes options only; usage: %s", spec.usage);
    if (o.model == NULL)
        return fail(RAIA_EINVAL, "--model is missing: a model folder, a cached hub id or "
                                 "preset:NAME");
    RAIA_TRY(adamw(&config));
    return o.output != NULL ? save_check(o.output) : RAIA_OK;
}

int cmd_train(int argc, char **argv)
{
    char **rest;
    int count;
    bool help;
    raia_status status = MEM_NEW(&rest, (size_t)argc);
    if (status != RAIA_OK)
        return cli_end(status);
    status = opt_parse(&spec, argc, argv, false, rest, &count, &help);
    free(rest);
    if (status == RAIA_OK && help)
        return 0;
    /* A rank starts when the driver has checked, and may find the output begun. */
    if (status == RAIA_OK && env_get("RAIA_RANK", NULL) == NULL)
        status = check(count);
    if (status != RAIA_OK)
        return cli_end(status);
    const raia_scaling scaling = { .num_workers = o.workers > 0 ? (int)o.workers : RAIA_ALL,
                                   .num_nodes = (int)o.nodes,
                                   .pending_s = o.pending_s };
    const raia_run run = { .name = o.name,
                           .fabric = o.fabric,
                           .require_fabric = o.require_fabric,
                           .report_file = o.report_file,
                           .json = o.json,
                           .timeout_s = o.timeout_s,
                           .total_steps = (int)o.steps };
    return raia_fit(train, NULL, &scaling, &run);
}
