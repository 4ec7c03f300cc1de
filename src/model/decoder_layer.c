/* One decoder layer, forward and backward, and the pieces it is made of. */
#include "model/decoder_priv.h"

/* ---- pieces ---- */

raia_status decoder_linear(struct decoder *d, const struct leaf *leaf, const void *x, void *out)
{
    const struct param *p = &d->tree->param[leaf->weight];
    RAIA_TRY(decoder_enter(d, leaf->module, PASS_FORWARD));
    const struct gemm a = { .m = d->n,
                            .n = p->rows,
                            .k = p->cols,
                            .a = x,
                            .b = d->store->weight[leaf->weight],
                            .c = out,
                            .bias = leaf->bias >= 0 ? d->store->weight[leaf->bias] : NULL,
                            .lda = p->cols,
                            .ldb = p->cols,
                            .ldc = p->rows,
                            .tb = true,
                            .dtype = d->store->dtype,
                            .c_dtype = d->store->dtype };
    if (d->n > 0)
        RAIA_TRY(d->ops->gemm(d->device, &a));
    return decoder_leave(d, leaf->module, PASS_FORWARD);
}

void *decoder_small_grad(struct decoder *d, int param)
{
    return d->store->grad_dtype == d->store->dtype ? d->store->grad[param] : d->small;
}

raia_status decoder_small_done(struct decoder *d, int param)
{
    if (d->store->grad_dtype == d->store->dtype)
        return RAIA_OK;
    const struct convert a = { .src = d->small,
                               .dst = d->store->grad[param],
                               .count = d->tree->param[param].count,
                               .src_dtype = d->store->dtype,
                               .dst_dtype = d->store->grad_dtype };
    return d->ops->convert(d->device, &a);
}

static raia_status zero_grad(struct decoder *d, int param)
{
    size_t bytes = d->tree->param[param].count * raia_dtype_size(d->store->grad_dtype);
    return d->device->planning ? RAIA_OK : d->ops->zero(d->device, d->store->grad[param], bytes);
}

static raia_status bias_bwd(struct decoder *d, int bias, const void *dy)
{
    if (bias < 0)
        return RAIA_OK;
    if (d->n == 0)
        return zero_grad(d, bias);
    const struct col_sum a = { .x = dy,
                               .out = decoder_small_grad(d, bias),
                               .rows = d->n,
                               .cols = d->tree->param[bias].count,
                               .dtype = d->store->dtype };
    RAIA_TRY(d->ops->col_sum(d->device, &a));
    return decoder_small_done(d, bias);
}

raia_status decoder_linear_bwd(struct decoder *d, const struct leaf *leaf, const void *x,
                               const void *dy, void *dx, bool accumulate)
{
    const struct param *p = &d->tree->param[leaf->weight];
    RAIA_TRY(bias_bwd(d, leaf->bias, dy));
    if (d->n == 0)
        return zero_grad(d, leaf->weight);
    const struct gemm to_x = { .m = d->n,
                               .n = p->cols,
                               .k = p->rows,
                               .a = dy,
                               .b = d->store->weight[leaf->weight],
                               .c = dx,
                               .lda = p->rows,
                               .ldb = p->cols,
                               .ldc = p->cols,
                               .accumulate = accumulate,
                               .dtype = d->store->dtype,
                               .c_dtype = d->store->dtype };
    const struct gemm to_w = { .m = p->rows,
                               .n = p->cols,
                               .k = d->n,
                               .a = dy,
                               .b = x,
                               .c = d->store->grad[leaf->weight],
                               .lda = p->rows,
                               .ldb = p->cols,
                               .ldc = p->cols,
                               .ta = true,
                               .dtype = d->store->dtype,
                               .c_dtype = d->store->grad_dtype };
    RAIA_TRY(d->ops->gemm(d->device, &to_x));
    return d->ops->gemm(d->device, &to_w);
}

raia_status decoder_norm(struct decoder *d, const struct leaf *leaf, const void *x, const void *add,
                         void *sum, void *y, float *rstd)
{
    RAIA_TRY(decoder_enter(d, leaf->module, PASS_FORWARD));
    const struct rmsnorm_fwd a = { .x = x,
                                   .add = add,
                                   .w = d->store->weight[leaf->weight],
                                   .sum = sum,
                                   .y = y,
                                   .rstd = rstd,
                                   .rows = d->n,
                                   .cols = d->config->hidden,
                                   .eps = (float)d->config->rms_eps,
                                   .dtype = d->store->dtype };
    if (d->n > 0)
        RAIA_TRY(d->ops->rmsnorm_fwd(d->device, &a));
    return decoder_leave(d, leaf->module, PASS_FORWARD);
}

raia_status decoder_norm_bwd(struct decoder *d, const struct leaf *leaf, const void *x,
                             const void *dy, const void *add, void *dx, const float *rstd)
{
    RAIA_TRY(decoder_enter(d, leaf->module, PASS_BACKWARD));
    const struct rmsnorm_bwd a = { .dy = dy,
                                   .x = x,
                                   .w = d->store->weight[leaf->weight],
                                   .add = add,
                                   .rstd = rstd,
                                   .dx = dx,
                                   .dw = decoder_small_grad(d, leaf->weight),
                                   .rows = d->n,
                                   .cols = d->config->hidden,
                                   .eps = (float)d->config->rms_eps,
                                   .dtype = d->store->dtype };
    if (d->n > 0) {
        RAIA_TRY(d->ops->rmsnorm_bwd(d->device, &a));
        RAIA_TRY(decoder_small_done(d, leaf->weight));
    } else {
        RAIA_TRY(zero_grad(d, leaf->weight));
    }
    return decoder_leave(d, leaf->module, PASS_BACKWARD);
}

/* Rope of HEADS heads, after the leaf's norm where the family has one. */
static raia_status rope(struct decoder *d, const struct leaf *norm, const void *x, void *y,
                        float *rstd, size_t heads)
{
    bool normed = d->config->qk_norm;
    if (normed)
        RAIA_TRY(decoder_enter(d, norm->module, PASS_FORWARD));
    const struct rope_fwd a = { .x = x,
                                .norm_w = normed ? d->store->weight[norm->weight] : NULL,
                                .cos_sin = d->cos_sin,
                                .y = y,
                                .rstd = rstd,
                                .tokens = d->n,
                                .seq = d->options.seq,
                                .heads = heads,
                                .head_dim = d->config->head_dim,
                                .stride = heads * d->config->head_dim,
                                .y_stride = heads * d->config->head_dim,
                                .eps = (float)d->config->rms_eps,
                                .dtype = d->store->dtype };
    if (d->n > 0)
        RAIA_TRY(d->ops->rope_fwd(d->device, &a));
    return normed ? decoder_leave(d, norm->module, PASS_FORWARD) : RAIA_OK;
}

static raia_status rope_bwd(struct decoder *d, const struct leaf *norm, const void *x, void *dx,
                            const float *rstd, size_t heads)
{
    bool normed = d->config->qk_norm;
    if (normed)
        RAIA_TRY(decoder_enter(d, norm->module, PASS_BACKWARD));
    const struct rope_bwd a = { .dy = dx,
                                .x = x,
                                .norm_w = normed ? d->store->weight[norm->weight] : NULL,
                                .cos_sin = d->cos_sin,
                                .rstd = rstd,
                                .dx = dx,
                                .dnorm_w = normed ? decoder_small_grad(d, norm->weight) : NULL,
                                .tokens = d->n,
                                .seq = d->options.seq,
                                .heads = heads,
                                .head_dim = d->config->head_dim,
                                .stride = heads * d->config->head_dim,
                                .dx_stride = heads * d->config->head_dim,
                                .eps = (float)d->config->rms_eps,
                                .dtype = d->store->dtype };
    if (d->n > 0)
        RAIA_TRY(d->ops->rope_bwd(d->device, &a));
    if (!normed)
        return RAIA_OK;
    RAIA_TRY(d->n > 0 ? decoder_small_done(d, norm->weight) : zero_grad(d, norm->weight));
    return decoder_leave(d, norm->module, PASS_BACKWARD);
}

static struct attention_fwd attention(const struct decoder *d, const struct layer *l)
{
    const struct model_config *c = d->config;
    return (struct attention_fwd){ .q = l->q_out,
                                   .k = l->k_out,
                                   .v = l->v_out,
                                   .out = l->att,
                                   .lse = l->lse,
                                   .batch = d->batch,
                                   .seq = d->options.seq,
                                   .heads = c->heads,
                                   .kv_heads = c->kv_heads,
                                   .head_dim = c->head_dim,
                                   .q_stride = c->heads * c->head_dim,
                                   .k_stride = c->kv_heads * c->head_dim,
                                   .v_stride = c->kv_heads * c->head_dim,
                                   .out_stride = c->heads * c->head_dim,
                                   .dtype = d->store->dtype };
}

/* ---- forward ---- */

static raia_status attention_forward(struct decoder *d, struct layer *l)
{
    RAIA_TRY(decoder_enter(d, l->attn, PASS_FORWARD));
    RAIA_TRY(decoder_linear(d, &l->q, l->n1, l->q_raw));
    RAIA_TRY(decoder_linear(d, &l->k, l->n1, l->k_raw));
    RAIA_TRY(decoder_linear(d, &l->v, l->n1, l->v_out));
    RAIA_TRY(rope(d, &l->q_norm, l->q_raw, l->q_out, l->q_rstd, d->config->heads));
    RAIA_TRY(rope(d, &l->k_norm, l->k_raw, l->k_out, l->k_rstd, d->config->kv_heads));
    const struct attention_fwd a = attention(d, l);
    if (d->n > 0)
        RAIA_TRY(d->ops->attention_fwd(d->device, &a));
    RAIA_TRY(decoder_linear(d, &l->o, l->att, d->hidden));
    return decoder_leave(d, l->attn, PASS_FORWARD);
}

static raia_status mlp_forward(struct decoder *d, struct layer *l)
{
    RAIA_TRY(decoder_enter(d, l->mlp, PASS_FORWARD));
    RAIA_TRY(decoder_linear(d, &l->gate, l->n2, l->gate_out));
    RAIA_TRY(decoder_linear(d, &l->up, l->n2, l->up_out));
    const struct swiglu_fwd a = { .gate = l->gate_out,
                                  .up = l->up_out,
                                  .y = d->act,
                                  .n = d->n * d->config->intermediate,
                                  .dtype = d->store->dtype };
    if (d->n > 0)
        RAIA_TRY(d->ops->swiglu_fwd(d->device, &a));
    RAIA_TRY(decoder_linear(d, &l->down, d->act, d->hidden));
    return decoder_leave(d, l->mlp, PASS_FORWARD);
}

raia_status decoder_layer_forward(struct decoder *d, size_t index)
{
    struct layer *l = &d->layer[index];
    bool first = index == 0; /* the embedding lies in sum1 already */
    RAIA_TRY(decoder_enter(d, l->module, PASS_FORWARD));
    RAIA_TRY(decoder_norm(d, &l->norm1, first ? l->sum1 : d->layer[index - 1].sum2,
                          first ? NULL : d->hidden, first ? NULL : l->sum1, l->n1, l->rstd1));
    RAIA_TRY(attention_forward(d, l));
    RAIA_TRY(decoder_norm(d, &l->norm2, l->sum1, d->hidden, l->sum2, l->n2, l->rstd2));
    RAIA_TRY(mlp_forward(d, l));
    return decoder_leave(d, l->module, PASS_FORWARD);
}

/* ---- backward ---- */

static raia_status back(struct decoder *d, const struct leaf *leaf, const void *x, const void *dy,
                        void *dx, bool accumulate)
{
    RAIA_TRY(decoder_enter(d, leaf->module, PASS_BACKWARD));
    RAIA_TRY(decoder_linear_bwd(d, leaf, x, dy, dx, accumulate));
    return decoder_leave(d, leaf->module, PASS_BACKWARD);
}

/* The product's input is the gate's value, which the backward of the gate makes again: the forward
 * kept only its factors. */
static raia_status down_backward(struct decoder *d, struct layer *l)
{
    const struct swiglu_fwd again = { .gate = l->gate_out,
                                      .up = l->up_out,
                                      .y = d->act,
                                      .n = d->n * d->config->intermediate,
                                      .dtype = d->store->dtype };
    if (d->n > 0)
        RAIA_TRY(d->ops->swiglu_fwd(d->device, &again));
    return back(d, &l->down, d->act, d->d_sum, d->d_act, false);
}

static raia_status mlp_backward(struct decoder *d, struct layer *l)
{
    RAIA_TRY(decoder_enter(d, l->mlp, PASS_BACKWARD));
    RAIA_TRY(down_backward(d, l));
    const struct swiglu_bwd a = { .dy = d->d_act,
                                  .gate = l->gate_out,
                                  .up = l->up_out,
                                  .dgate = l->gate_out,
                                  .dup = l->up_out,
                                  .n = d->n * d->config->intermediate,
                                  .dtype = d->store->dtype };
    if (d->n > 0)
        RAIA_TRY(d->ops->swiglu_bwd(d->device, &a));
    RAIA_TRY(back(d, &l->up, l->n2, l->up_out, d->d_hidden, false));
    RAIA_TRY(back(d, &l->gate, l->n2, l->gate_out, d->d_hidden, true));
    return decoder_leave(d, l->mlp, PASS_BACKWARD);
}

static raia_status attention_backward(struct decoder *d, struct layer *l)
{
    RAIA_TRY(decoder_enter(d, l->attn, PASS_BACKWARD));
    RAIA_TRY(back(d, &l->o, l->att, d->d_sum, d->d_att, false));
    const struct attention_bwd a = {
        .fwd = attention(d, l), .dout = d->d_att, .dq = d->d_q, .dk = d->d_k, .dv = d->d_v
    };
    if (d->n > 0)
        RAIA_TRY(d->ops->attention_bwd(d->device, &a));
    RAIA_TRY(rope_bwd(d, &l->k_norm, l->k_raw, d->d_k, l->k_rstd, d->config->kv_heads));
    RAIA_TRY(rope_bwd(d, &l->q_norm, l->q_raw, d->d_q, l->q_rstd, d->config->heads));
    RAIA_TRY(back(d, &l->v, l->n1, d->d_v, d->d_hidden, false));
    RAIA_TRY(back(d, &l->k, l->n1, d->d_k, d->d_hidden, true));
    RAIA_TRY(back(d, &l->q, l->n1, d->d_q, d->d_hidden, true));
    return decoder_leave(d, l->attn, PASS_BACKWARD);
}

raia_status decoder_layer_backward(struct decoder *d, size_t index)
{
    struct layer *l = &d->layer[index];
    RAIA_TRY(decoder_enter(d, l->module, PASS_BACKWARD));
    RAIA_TRY(mlp_backward(d, l));
    RAIA_TRY(decoder_norm_bwd(d, &l->norm2, l->sum2, d->d_hidden, d->d_sum, d->d_sum, l->rstd2));
    RAIA_TRY(attention_backward(d, l));
    RAIA_TRY(decoder_norm_bwd(d, &l->norm1, l->sum1, d->d_hidden, d->d_sum, d->d_sum, l->rstd1));
    return decoder_leave(d, l->module, PASS_BACKWARD);
}
