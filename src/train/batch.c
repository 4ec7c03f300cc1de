/* Data as a train function sees it: this rank's share of each step's samples. */
#include "train/train_priv.h"

#include <stdlib.h>

void data_free(raia_data *data)
{
    if (data == NULL)
        return;
    source_close(&data->source);
    free(data->tokens);
    free(data);
}

void data_rewind(raia_data *data)
{
    data->step = 0;
}

static raia_status prepare(raia_data *d, const raia_context *c, const raia_data_config *config)
{
    const struct world *w = &c->world;
    uint64_t size = (uint64_t)w->size;
    if (config->batch_size > 0 && config->global_batch > 0)
        return fail(RAIA_EINVAL, "give a batch size for each rank or a global one, not both");
    d->seq = config->seq_len > 0 ? config->seq_len : 128;
    if (d->seq < 2)
        return fail(RAIA_EINVAL, "a sample of 1 token predicts nothing: seq_len is at least 2");
    uint64_t global = config->global_batch > 0
                          ? config->global_batch
                          : (config->batch_size > 0 ? config->batch_size : 1) * size;
    d->sampler = (struct sampler){
        .samples = d->source.tokens == UINT64_MAX ? UINT64_MAX : d->source.tokens / d->seq,
        .global_batch = global,
        .rank = w->rank,
        .size = w->size,
        .shuffle = config->shuffle != 0,
        .seed = config->seed,
        .epochs = config->epochs > 0 ? config->epochs : 1,
    };
    RAIA_TRY(sampler_check(&d->sampler, d->source.name));
    sampler_share(&d->sampler, w->rank, &d->first, &d->count);
    return MEM_NEW(&d->tokens, d->count * d->seq);
}

raia_status raia_data_open(raia_context *context, const raia_model *model, const char *source,
                           const raia_data_config *config, raia_data **out)
{
    const raia_data_config none = { 0 };
    if (config == NULL)
        config = &none;
    raia_data *d;
    RAIA_TRY(MEM_NEW(&d, 1));
    raia_status status = source_open(source, model->config.vocab, config->seed, &d->source);
    if (status != RAIA_OK) {
        free(d);
        return status;
    }
    status = prepare(d, context, config);
    if (status != RAIA_OK) {
        data_free(d);
        return status;
    }
    d->next = context->datas;
    context->datas = d;
    *out = d;
    return RAIA_OK;
}

uint64_t raia_data_steps(const raia_data *data)
{
    return sampler_steps(&data->sampler);
}

uint64_t raia_data_global_batch(const raia_data *data)
{
    return data->sampler.global_batch;
}

raia_status raia_next_batch(raia_context *context, raia_data *data, raia_batch **out)
{
    (void)context;
    if (data->step >= sampler_steps(&data->sampler))
        return fail(RAIA_ENOTFOUND, "%s has no more than %llu steps of %llu samples",
                    data->source.name, (unsigned long long)data->step,
                    (unsigned long long)data->sampler.global_batch);
    for (uint64_t i = 0; i < data->count; i++)
        RAIA_TRY(source_sample(&data->source,
                               sampler_at(&data->sampler, data->step, data->first + i), data->seq,
                               data->tokens + i * data->seq));
    data->step++;
    data->batch = (raia_batch){ .tokens = data->tokens,
                                .count = data->count,
                                .seq = data->seq,
                                .global = data->sampler.global_batch };
    *out = &data->batch;
    return RAIA_OK;
}
