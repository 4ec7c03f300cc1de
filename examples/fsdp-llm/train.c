/* fsdp-llm: trains a Hugging Face model with FSDP. This file is the whole job: run by hand it
 * trains on this machine, submitted with `raia job submit` on the workers of the cluster. */
#include <raia/raia.h>

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { MODEL, DTYPE, DATA, EVAL_DATA, STEPS, BATCH, SEQ, LR, WORKERS, OUTPUT, REPORT, OPTIONS };

static const struct option names[] = {
    { "model", 1, NULL, MODEL },         /* a folder, or a hub id that the local cache holds */
    { "dtype", 1, NULL, DTYPE },         /* bf16 or f32 */
    { "data", 1, NULL, DATA },           /* random, FILE.bin of uint32 tokens, or text */
    { "eval-data", 1, NULL, EVAL_DATA }, /* its loss is reported before and after */
    { "steps", 1, NULL, STEPS },
    { "batch-size", 1, NULL, BATCH },
    { "seq-len", 1, NULL, SEQ },
    { "lr", 1, NULL, LR },
    { "workers", 1, NULL, WORKERS },    /* -1: all of the cluster */
    { "output", 1, NULL, OUTPUT },      /* folder for the trained model */
    { "report-file", 1, NULL, REPORT }, /* all reports as JSON lines */
    { NULL, 0, NULL, 0 },
};

static raia_status evaluate(raia_context *ctx, raia_model *model, raia_data *data)
{
    float loss;
    RAIA_TRY(raia_evaluate(ctx, model, data, 0, &loss));
    return raia_report(ctx, "eval_loss", loss);
}

static raia_status train(raia_context *ctx, void *arg)
{
    const char **o = arg;
    const raia_precision dtype =
        strcmp(o[DTYPE], "f32") == 0 ? RAIA_PRECISION_F32 : RAIA_PRECISION_BF16;
    const raia_data_config batches = { .seq_len = (size_t)atoi(o[SEQ]),
                                       .batch_size = (size_t)atoi(o[BATCH]) };
    const raia_adamw_config adamw = { .lr = atof(o[LR]), .weight_decay = 0.01 };
    raia_model *model;
    raia_data *data, *eval_data = NULL;
    raia_optimizer *optimizer;
    RAIA_TRY(raia_model_from_pretrained(ctx, o[MODEL], dtype, &model));
    RAIA_TRY(raia_data_open(ctx, model, o[DATA], &batches, &data));
    if (o[EVAL_DATA] != NULL)
        RAIA_TRY(raia_data_open(ctx, model, o[EVAL_DATA], &batches, &eval_data));
    RAIA_TRY(raia_prepare_model(ctx, model, &(raia_fsdp){ .min_num_params = 10000000 }));
    RAIA_TRY(raia_adamw(ctx, model, &adamw, &optimizer));
    if (o[EVAL_DATA] != NULL)
        RAIA_TRY(evaluate(ctx, model, eval_data));
    for (int step = 0; step < atoi(o[STEPS]); step++) {
        raia_batch *batch;
        float loss;
        RAIA_TRY(raia_next_batch(ctx, data, &batch));
        RAIA_TRY(raia_forward_backward(ctx, model, batch, &loss));
        RAIA_TRY(raia_optimizer_step(ctx, optimizer));
        RAIA_TRY(
            raia_report(ctx, "step", step, "loss", loss, "grad_norm", raia_grad_norm(optimizer)));
    }
    if (o[EVAL_DATA] != NULL)
        RAIA_TRY(evaluate(ctx, model, eval_data));
    return o[OUTPUT] != NULL ? raia_model_save(ctx, model, o[OUTPUT]) : RAIA_OK;
}

int main(int argc, char **argv)
{
    const char *o[OPTIONS] = {
        [MODEL] = "Qwen/Qwen2.5-1.5B",
        [DTYPE] = "bf16",
        [DATA] = "random",
        [STEPS] = "20",
        [BATCH] = "1",
        [SEQ] = "128",
        [LR] = "1e-5",
        [WORKERS] = "-1",
    };
    for (int i; (i = getopt_long(argc, argv, "", names, NULL)) != -1; o[i] = optarg)
        if (i == '?')
            return 2;
    const raia_scaling scaling = { .num_workers = atoi(o[WORKERS]) };
    const raia_run run = { .name = "fsdp-llm",
                           .report_file = o[REPORT],
                           .total_steps = atoi(o[STEPS]) };
    return raia_fit(train, o, &scaling, &run);
}
