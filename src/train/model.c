/* A model as a train function sees it: its shape, its shards, its step. */
#include "train/train_priv.h"

#include <stdlib.h>
#include <string.h>

void model_free(raia_model *model)
{
    if (model == NULL)
        return;
    decoder_free(model->decoder);
    shard_free(model->shard);
    st_close(model->weights);
    tree_release(&model->tree);
    free(model->dir);
    free(model);
}

static raia_status read_shape(raia_model *m, const char *id)
{
    if (str_starts(id, "preset:")) {
        RAIA_TRY(config_preset(id + strlen("preset:"), &m->config));
    } else {
        RAIA_TRY(model_resolve(id, &m->dir));
        RAIA_TRY(model_load_config(m->dir, &m->config));
        RAIA_TRY(st_open(m->dir, &m->weights));
    }
    RAIA_TRY(tree_build(&m->config, &m->tree));
    return raia_model_describe(m->dir != NULL ? m->dir : id + strlen("preset:"), &m->info);
}

raia_status raia_model_from_pretrained(raia_context *context, const char *id,
                                       raia_precision precision, raia_model **out)
{
    static const enum precision words[] = { [RAIA_PRECISION_F32] = PRECISION_F32,
                                            [RAIA_PRECISION_BF16] = PRECISION_BF16,
                                            [RAIA_PRECISION_MIXED] = PRECISION_MIXED };
    if ((unsigned)precision > RAIA_PRECISION_MIXED)
        return fail(RAIA_EINVAL, "precision %d: none of raia_precision's", (int)precision);
    raia_model *m;
    RAIA_TRY(MEM_NEW(&m, 1));
    m->precision = words[precision];
    raia_status status = read_shape(m, id);
    /* Reading the copy of a tied head costs: once for all. */
    if (status == RAIA_OK && m->weights != NULL && context->world.rank == 0)
        status = st_check(m->weights, &m->tree, m->config.tied);
    if (status != RAIA_OK) {
        model_free(m);
        return status;
    }
    m->next = context->models;
    context->models = m;
    *out = m;
    return RAIA_OK;
}

static struct shard_options shard_options(const raia_model *m, const raia_fsdp *fsdp)
{
    return (struct shard_options){
        .strategy = fsdp->strategy == RAIA_FULL_SHARD   ? SHARD_FULL
                    : fsdp->strategy == RAIA_SHARD_GRAD ? SHARD_GRAD
                                                        : SHARD_NONE,
        .wrap = fsdp->wrap == RAIA_WRAP_BLOCK ? WRAP_BLOCK : WRAP_SIZE,
        .min_unit_params = fsdp->min_num_params > 0 ? fsdp->min_num_params : 10000000,
        .precision = m->precision,
        .reduce_f32 = fsdp->reduce_f32 != 0,
        .prefetch = 1,
    };
}

raia_status raia_prepare_model(raia_context *context, raia_model *model, const raia_fsdp *fsdp)
{
    const raia_fsdp none = { 0 };
    if (fsdp == NULL)
        fsdp = &none;
    if (model->shard != NULL)
        return fail(RAIA_EINVAL, "raia_prepare_model: this model is prepared already");
    const struct shard_options options = shard_options(model, fsdp);
    model->nearest = fsdp->nearest != 0;
    model->seed = fsdp->seed;
    RAIA_TRY(shard_new(&model->shard, context->device, context->comm, &model->tree, &options));
    if (model->weights == NULL)
        return shard_init(model->shard, &model->config, model->seed);
    RAIA_TRY(shard_load(model->shard, model->weights));
    st_close(model->weights);
    model->weights = NULL;
    return RAIA_OK;
}

const raia_model_info *raia_model_get_info(const raia_model *model)
{
    return &model->info;
}

/* Activations are laid out once, for the largest batch of all data that is open by now. */
static raia_status ready(raia_context *c, raia_model *m, size_t batch, size_t seq)
{
    if (m->shard == NULL)
        return fail(RAIA_EINVAL, "this model is not prepared: call raia_prepare_model first");
    if (m->decoder != NULL) {
        if (batch <= m->sizes.batch && seq == m->sizes.seq)
            return RAIA_OK;
        return fail(
            RAIA_EINVAL,
            "a batch of %zu x %zu tokens does not fit the model's %zu x %zu: open all data, "
            "with one seq_len, before the first step",
            batch, seq, m->sizes.batch, m->sizes.seq);
    }
    m->sizes = (struct decoder_options){ .batch = batch > 0 ? batch : 1, .seq = seq };
    for (const raia_data *d = c->datas; d != NULL; d = d->next)
        if (d->seq == seq && d->count > m->sizes.batch)
            m->sizes.batch = d->count;
    RAIA_TRY(decoder_new(&m->decoder, c->device, &m->config, &m->tree, shard_store(m->shard),
                         &m->sizes));
    return shard_plan_end(m->shard);
}

raia_status raia_forward_backward(raia_context *context, raia_model *model, const raia_batch *batch,
                                  float *loss)
{
    RAIA_TRY(ready(context, model, batch->count, batch->seq));
    if (!model->in_step)
        RAIA_TRY(shard_step_begin(model->shard));
    model->in_step = true;
    double predictions = (double)batch->global * (double)(batch->seq - 1);
    double sum;
    RAIA_TRY(decoder_forward_backward(model->decoder, batch->tokens, NULL, batch->count,
                                      (float)(1.0 / predictions), &sum));
    RAIA_TRY(comm_sum_f64(context->comm, &sum, 1));
    *loss = (float)(sum / predictions);
    return RAIA_OK;
}

raia_status raia_evaluate(raia_context *context, raia_model *model, raia_data *data,
                          uint64_t max_steps, float *loss)
{
    uint64_t steps = raia_data_steps(data);
    if (max_steps > 0 && max_steps < steps)
        steps = max_steps;
    if (steps == 0 || steps == UINT64_MAX)
        return fail(RAIA_EINVAL, "raia_evaluate: %s has %s: give max_steps", data->source.name,
                    steps == 0 ? "no step" : "no end");
    data_rewind(data);
    RAIA_TRY(ready(context, model, data->count, data->seq));
    RAIA_TRY(shard_eval_begin(model->shard));
    double total = 0;
    for (uint64_t s = 0; s < steps; s++) {
        raia_batch *batch;
        double sum;
        RAIA_TRY(raia_next_batch(context, data, &batch));
        RAIA_TRY(decoder_loss(model->decoder, batch->tokens, NULL, batch->count, &sum));
        total += sum;
    }
    RAIA_TRY(shard_eval_end(model->shard));
    RAIA_TRY(comm_sum_f64(context->comm, &total, 1));
    data_rewind(data);
    *loss = (float)(total /
                    ((double)steps * (double)data->sampler.global_batch * (double)(data->seq - 1)));
    return RAIA_OK;
}
