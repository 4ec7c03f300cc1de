/* decoder: forward, loss and backward of a Qwen2, Qwen3 or Llama decoder, over struct ops alone.
 *
 * The order of the store's events. It is the same every step and in the dry run of decoder_new,
 * which makes every call of a step below (head_rows and embed_grad too) with device->planning set:
 * pointers may then be NULL, and what they point to means nothing.
 *
 *   PASS_FORWARD (all that decoder_loss does)
 *     enter root ""
 *       enter model
 *         model.embed_tokens                           (enter, use, leave)
 *         enter model.layers
 *           enter model.layers.0, then .1 ...
 *             input_layernorm
 *             enter self_attn: q_proj, k_proj, v_proj, [q_norm, k_norm,] o_proj, leave
 *             post_attention_layernorm
 *             enter mlp: gate_proj, up_proj, down_proj, leave
 *           leave model.layers.0
 *         leave model.layers
 *         model.norm
 *       leave model
 *       lm_head                                        logits and statistics of the loss
 *     leave root
 *   PASS_BACKWARD
 *     enter root ""
 *       enter lm_head                                  the very next leaf after its forward
 *         for each block of rows in order: head_rows, head_rows_done
 *       leave lm_head
 *       enter model
 *         model.norm
 *         enter model.layers
 *           enter the last layer, then the one before ...
 *             enter mlp: down_proj, up_proj, gate_proj, leave
 *             post_attention_layernorm
 *             enter self_attn: o_proj, [k_norm, q_norm,] v_proj, k_proj, q_proj, leave
 *             input_layernorm
 *           leave
 *         leave model.layers
 *         embed_grad                                   embed_tokens itself is not entered
 *       leave model
 *     leave root
 *
 * Each leaf's gradients are whole when it is left. Loss and targets cross between host and device
 * through ops->copy. */
#include "model/decoder_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- places ---- */

static raia_status find_leaf(const struct decoder *d, struct leaf *leaf, bool bias,
                             const char *format, size_t index)
{
    char name[80];
    /* FORMAT is one of the literals below. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, format, index);
#pragma GCC diagnostic pop
    *leaf = (struct leaf){ .module = tree_find_module(d->tree, name), .weight = -1, .bias = -1 };
    if (leaf->module < 0)
        return fail(RAIA_EBUG, "the tree has no module %s", name);
    const struct module *m = &d->tree->module[leaf->module];
    if (m->params < 1 || (bias && m->params < 2))
        return fail(RAIA_EBUG, "module %s lacks a parameter", name);
    leaf->weight = d->tree->own[m->first_param];
    if (bias)
        leaf->bias = d->tree->own[m->first_param + 1];
    return RAIA_OK;
}

static raia_status find_module(const struct decoder *d, int *out, const char *name)
{
    *out = tree_find_module(d->tree, name);
    return *out >= 0 ? RAIA_OK : fail(RAIA_EBUG, "the tree has no module \"%s\"", name);
}

static raia_status find_layer(const struct decoder *d, struct layer *l, size_t i)
{
    char name[64];
    bool bias = d->config->qkv_bias, norm = d->config->qk_norm;
    snprintf(name, sizeof name, "model.layers.%zu", i);
    RAIA_TRY(find_module(d, &l->module, name));
    snprintf(name, sizeof name, "model.layers.%zu.self_attn", i);
    RAIA_TRY(find_module(d, &l->attn, name));
    snprintf(name, sizeof name, "model.layers.%zu.mlp", i);
    RAIA_TRY(find_module(d, &l->mlp, name));
    RAIA_TRY(find_leaf(d, &l->norm1, false, "model.layers.%zu.input_layernorm", i));
    RAIA_TRY(find_leaf(d, &l->q, bias, "model.layers.%zu.self_attn.q_proj", i));
    RAIA_TRY(find_leaf(d, &l->k, bias, "model.layers.%zu.self_attn.k_proj", i));
    RAIA_TRY(find_leaf(d, &l->v, bias, "model.layers.%zu.self_attn.v_proj", i));
    RAIA_TRY(find_leaf(d, &l->o, false, "model.layers.%zu.self_attn.o_proj", i));
    if (norm) {
        RAIA_TRY(find_leaf(d, &l->q_norm, false, "model.layers.%zu.self_attn.q_norm", i));
        RAIA_TRY(find_leaf(d, &l->k_norm, false, "model.layers.%zu.self_attn.k_norm", i));
    }
    RAIA_TRY(find_leaf(d, &l->norm2, false, "model.layers.%zu.post_attention_layernorm", i));
    RAIA_TRY(find_leaf(d, &l->gate, false, "model.layers.%zu.mlp.gate_proj", i));
    RAIA_TRY(find_leaf(d, &l->up, false, "model.layers.%zu.mlp.up_proj", i));
    return find_leaf(d, &l->down, false, "model.layers.%zu.mlp.down_proj", i);
}

static raia_status find_all(struct decoder *d)
{
    RAIA_TRY(find_module(d, &d->root, ""));
    RAIA_TRY(find_module(d, &d->model, "model"));
    RAIA_TRY(find_module(d, &d->list, "model.layers"));
    RAIA_TRY(find_leaf(d, &d->embed, false, "model.embed_tokens", 0));
    RAIA_TRY(find_leaf(d, &d->norm, false, "model.norm", 0));
    RAIA_TRY(find_leaf(d, &d->head, false, "lm_head", 0));
    for (size_t i = 0; i < d->config->layers; i++)
        RAIA_TRY(find_layer(d, &d->layer[i], i));
    return RAIA_OK;
}

/* ---- rope's table ---- */

/* Wavelengths beyond the trained context are stretched by the factor, short ones kept, those
 * between blended (Llama 3.1's scaling). */
static double scaled_frequency(const struct model_config *c, double f)
{
    if (c->rope_type != ROPE_LLAMA3)
        return f;
    double wavelength = 2 * M_PI / f, original = c->rope_original_max;
    if (wavelength < original / c->rope_high_freq)
        return f;
    if (wavelength > original / c->rope_low_freq)
        return f / c->rope_factor;
    double smooth =
        (original / wavelength - c->rope_low_freq) / (c->rope_high_freq - c->rope_low_freq);
    return (1 - smooth) * f / c->rope_factor + smooth * f;
}

static raia_status fill_rope(struct decoder *d)
{
    const struct model_config *c = d->config;
    size_t dim = c->head_dim, half = dim / 2, seq = d->options.seq;
    float *host;
    RAIA_TRY(MEM_NEW(&host, seq * dim));
    for (size_t i = 0; i < half; i++) {
        /* f32, as transformers keeps the inverse frequencies. */
        float f = (float)scaled_frequency(c, pow(c->rope_theta, -2.0 * (double)i / (double)dim));
        for (size_t t = 0; t < seq; t++) {
            float angle = (float)t * f;
            host[t * dim + i] = cosf(angle);
            host[t * dim + half + i] = sinf(angle);
        }
    }
    raia_status status = d->ops->copy(d->device, d->cos_sin, host, seq * dim * sizeof *host);
    free(host);
    return status;
}

/* ---- a step ---- */

raia_status decoder_enter(struct decoder *d, int module, enum pass pass)
{
    return d->store->enter(d->store, module, pass);
}

raia_status decoder_leave(struct decoder *d, int module, enum pass pass)
{
    return d->store->leave(d->store, module, pass);
}

static raia_status embed(struct decoder *d)
{
    RAIA_TRY(decoder_enter(d, d->embed.module, PASS_FORWARD));
    if (d->n > 0) {
        const struct embed_fwd a = { .table = d->store->weight[d->embed.weight],
                                     .tokens = d->ids,
                                     .y = d->layer[0].sum1,
                                     .count = d->n,
                                     .cols = d->config->hidden,
                                     .dtype = d->store->dtype };
        RAIA_TRY(d->ops->embed_fwd(d->device, &a));
    }
    return decoder_leave(d, d->embed.module, PASS_FORWARD);
}

static raia_status forward(struct decoder *d, double *loss_sum)
{
    const struct layer *last = &d->layer[d->config->layers - 1];
    RAIA_TRY(decoder_enter(d, d->root, PASS_FORWARD));
    RAIA_TRY(decoder_enter(d, d->model, PASS_FORWARD));
    RAIA_TRY(embed(d));
    RAIA_TRY(decoder_enter(d, d->list, PASS_FORWARD));
    for (size_t i = 0; i < d->config->layers; i++)
        RAIA_TRY(decoder_layer_forward(d, i));
    RAIA_TRY(decoder_leave(d, d->list, PASS_FORWARD));
    RAIA_TRY(decoder_norm(d, &d->norm, last->sum2, d->hidden, d->sum_f, d->n_f, d->rstd_f));
    RAIA_TRY(decoder_leave(d, d->model, PASS_FORWARD));
    RAIA_TRY(decoder_head_forward(d, loss_sum));
    return decoder_leave(d, d->root, PASS_FORWARD);
}

static raia_status backward(struct decoder *d)
{
    RAIA_TRY(decoder_enter(d, d->root, PASS_BACKWARD));
    RAIA_TRY(decoder_head_backward(d));
    RAIA_TRY(decoder_enter(d, d->model, PASS_BACKWARD));
    RAIA_TRY(decoder_norm_bwd(d, &d->norm, d->sum_f, d->d_hidden, NULL, d->d_sum, d->rstd_f));
    RAIA_TRY(decoder_enter(d, d->list, PASS_BACKWARD));
    for (size_t i = d->config->layers; i-- > 0;)
        RAIA_TRY(decoder_layer_backward(d, i));
    RAIA_TRY(decoder_leave(d, d->list, PASS_BACKWARD));
    RAIA_TRY(d->store->embed_grad(d->store, d->ids, d->d_sum, d->n));
    RAIA_TRY(decoder_leave(d, d->model, PASS_BACKWARD));
    return decoder_leave(d, d->root, PASS_BACKWARD);
}

static raia_status check_tokens(const struct decoder *d, const uint32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (tokens[i] >= d->config->vocab)
            return fail(RAIA_EINVAL,
                        "sample %zu, position %zu: token %u is not below the vocabulary's %zu",
                        i / d->options.seq, i % d->options.seq, tokens[i], d->config->vocab);
    return RAIA_OK;
}

static raia_status load(struct decoder *d, const uint32_t *tokens, const int32_t *targets,
                        size_t batch)
{
    size_t seq = d->options.seq, n = batch * seq;
    if (batch > d->options.batch)
        return fail(RAIA_EINVAL, "a batch of %zu samples; the decoder was made for %zu", batch,
                    d->options.batch);
    RAIA_TRY(check_tokens(d, tokens, n));
    for (size_t i = 0; i < n; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): n > 0 says that seq is not 0 */
        int32_t next = i % seq + 1 < seq ? (int32_t)tokens[i + 1] : -1;
        d->host_targets[i] = targets != NULL ? targets[i] : next;
        if (d->host_targets[i] >= 0 && (size_t)d->host_targets[i] >= d->config->vocab)
            return fail(RAIA_EINVAL, "target %d of position %zu is not below the vocabulary's %zu",
                        d->host_targets[i], i, d->config->vocab);
    }
    d->batch = batch;
    d->n = n;
    if (n == 0)
        return RAIA_OK;
    RAIA_TRY(d->ops->copy(d->device, d->ids, tokens, n * sizeof *tokens));
    return d->ops->copy(d->device, d->targets, d->host_targets, n * sizeof *d->host_targets);
}

raia_status decoder_forward_backward(struct decoder *d, const uint32_t *tokens,
                                     const int32_t *targets, size_t batch, float scale,
                                     double *loss_sum)
{
    RAIA_TRY(load(d, tokens, targets, batch));
    d->scale = scale;
    RAIA_TRY(forward(d, loss_sum));
    return backward(d);
}

raia_status decoder_loss(struct decoder *d, const uint32_t *tokens, const int32_t *targets,
                         size_t batch, double *loss_sum)
{
    RAIA_TRY(load(d, tokens, targets, batch));
    return forward(d, loss_sum);
}

/* ---- life ---- */

static raia_status plan(struct decoder *d)
{
    double sum;
    d->batch = d->options.batch;
    d->n = d->tokens;
    d->device->planning = true;
    raia_status status = forward(d, &sum);
    if (status == RAIA_OK)
        status = backward(d);
    d->device->planning = false;
    return status == RAIA_OK ? device_plan_end(d->device) : status;
}

static raia_status open_decoder(struct decoder *d)
{
    RAIA_TRY(MEM_NEW(&d->layer, d->config->layers));
    RAIA_TRY(MEM_NEW(&d->host_loss, d->tokens));
    RAIA_TRY(MEM_NEW(&d->host_targets, d->tokens));
    RAIA_TRY(find_all(d));
    d->bytes = decoder_place(d, NULL);
    raia_status status = d->ops->alloc(d->device, d->bytes, &d->memory);
    if (status != RAIA_OK)
        return fail_in(status, "activations of %zu x %zu tokens", d->options.batch, d->options.seq);
    decoder_place(d, d->memory);
    RAIA_TRY(fill_rope(d));
    return plan(d);
}

raia_status decoder_new(struct decoder **out, struct device *device,
                        const struct model_config *config, const struct tree *tree,
                        struct param_store *store, const struct decoder_options *options)
{
    struct decoder *d;
    if (options->batch == 0 || options->seq == 0 || config->layers == 0)
        return fail(RAIA_EINVAL, "a decoder of %zu layers for %zu samples of %zu tokens",
                    config->layers, options->batch, options->seq);
    RAIA_TRY(MEM_NEW(&d, 1));
    d->device = device;
    d->ops = device->ops;
    d->config = config;
    d->tree = tree;
    d->store = store;
    d->options = *options;
    d->tokens = options->batch * options->seq;
    raia_status status = open_decoder(d);
    if (status != RAIA_OK) {
        decoder_free(d);
        return status;
    }
    *out = d;
    return RAIA_OK;
}

void decoder_free(struct decoder *d)
{
    if (d == NULL)
        return;
    if (d->memory != NULL)
        d->ops->release(d->device, d->memory, d->bytes);
    free(d->layer);
    free(d->host_loss);
    free(d->host_targets);
    free(d);
}
