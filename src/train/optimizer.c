#include "train/train_priv.h"

raia_status raia_adamw(raia_context *context, raia_model *model, const raia_adamw_config *config,
                       raia_optimizer **out)
{
    const raia_adamw_config none = { 0 };
    if (config == NULL)
        config = &none;
    raia_optimizer *o;
    if (model->shard == NULL)
        return fail(RAIA_EINVAL, "raia_adamw: this model is not prepared");
    if (!(config->lr >= 0) || !(config->beta1 >= 0 && config->beta1 < 1) ||
        !(config->beta2 >= 0 && config->beta2 < 1) || !(config->eps >= 0) ||
        !(config->weight_decay >= 0) || !(config->grad_clip >= 0))
        return fail(RAIA_EINVAL, "AdamW: lr, eps, weight decay and clip are at least 0, betas at "
                                 "least 0 and below 1");
    RAIA_TRY(MEM_NEW(&o, 1));
    o->model = model;
    o->adamw = (struct shard_adamw){
        .lr = config->lr > 0 ? config->lr : 1e-3,
        .beta1 = config->beta1 > 0 ? config->beta1 : 0.9,
        .beta2 = config->beta2 > 0 ? config->beta2 : 0.999,
        .eps = config->eps > 0 ? config->eps : 1e-8,
        .weight_decay = config->weight_decay,
        .grad_clip = config->grad_clip,
        .stochastic = model->precision == PRECISION_BF16 && !model->nearest,
        .seed = model->seed,
    };
    o->next = context->optimizers;
    context->optimizers = o;
    *out = o;
    return RAIA_OK;
}

void raia_set_lr(raia_optimizer *optimizer, double lr)
{
    optimizer->adamw.lr = lr;
}

raia_status raia_optimizer_step(raia_context *context, raia_optimizer *optimizer)
{
    (void)context;
    raia_model *m = optimizer->model;
    if (!m->in_step)
        return fail(RAIA_EINVAL, "raia_optimizer_step without raia_forward_backward before it");
    m->in_step = false;
    RAIA_TRY(
        shard_step_end(m->shard, &optimizer->adamw, optimizer->step + 1, &optimizer->grad_norm));
    optimizer->step++;
    return RAIA_OK;
}

double raia_grad_norm(const raia_optimizer *optimizer)
{
    return optimizer->grad_norm;
}
