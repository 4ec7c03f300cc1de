/* Where the decoder's buffers lie: one allocation, placed by the same code that counts it. */
#include "model/decoder_priv.h"

#include <stdlib.h>

enum { ALIGN = 64, LOGITS_BYTES = 128 << 20 };

struct cursor {
    char *base; /* NULL: counts only */
    size_t at;
};

static void *take(struct cursor *c, size_t count, size_t size)
{
    void *p = c->base != NULL ? c->base + c->at : NULL;
    c->at += (count * size + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

size_t decoder_logit_cols(const struct model_config *config, raia_dtype dtype,
                          const struct decoder_options *options)
{
    size_t budget = options->logits_bytes > 0 ? options->logits_bytes : LOGITS_BYTES;
    size_t column = options->batch * options->seq * raia_dtype_size(dtype);
    size_t cols = budget / column;
    if (cols >= config->vocab)
        return config->vocab;
    /* Whole cache lines, and never less than makes a matrix product worth its while. */
    cols = cols / 64 * 64;
    size_t least = config->vocab < 256 ? config->vocab : 256;
    return cols < least ? least : cols;
}

static void place_layer(const struct decoder *d, struct layer *l, struct cursor *c)
{
    const struct model_config *m = d->config;
    size_t n = d->tokens, t = raia_dtype_size(d->store->dtype), f = sizeof(float);
    size_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim;
    l->sum1 = take(c, n * m->hidden, t);
    l->n1 = take(c, n * m->hidden, t);
    l->rstd1 = take(c, n, f);
    l->q_out = take(c, n * q, t);
    l->k_out = take(c, n * k, t);
    l->v_out = take(c, n * k, t);
    l->q_raw = m->qk_norm ? take(c, n * q, t) : l->q_out;
    l->k_raw = m->qk_norm ? take(c, n * k, t) : l->k_out;
    l->q_rstd = m->qk_norm ? take(c, n * m->heads, f) : NULL;
    l->k_rstd = m->qk_norm ? take(c, n * m->kv_heads, f) : NULL;
    l->att = take(c, n * q, t);
    l->lse = take(c, n * m->heads, f);
    l->sum2 = take(c, n * m->hidden, t);
    l->n2 = take(c, n * m->hidden, t);
    l->rstd2 = take(c, n, f);
    l->gate_out = take(c, n * m->intermediate, t);
    l->up_out = take(c, n * m->intermediate, t);
}

static void place_shared(struct decoder *d, struct cursor *c)
{
    const struct model_config *m = d->config;
    size_t n = d->tokens, t = raia_dtype_size(d->store->dtype), f = sizeof(float);
    size_t q = m->heads * m->head_dim, k = m->kv_heads * m->head_dim;
    d->act = take(c, n * m->intermediate, t);
    d->d_act = take(c, n * m->intermediate, t);
    d->hidden = take(c, n * m->hidden, t);
    d->d_hidden = take(c, n * m->hidden, t);
    d->d_sum = take(c, n * m->hidden, t);
    d->d_q = take(c, n * q, t);
    d->d_att = take(c, n * q, t);
    d->d_k = take(c, n * k, t);
    d->d_v = take(c, n * k, t);
    d->sum_f = take(c, n * m->hidden, t);
    d->n_f = take(c, n * m->hidden, t);
    d->rstd_f = take(c, n, f);
    d->logits = take(c, n * d->logit_cols, t);
    d->d_n_f32 = d->logit_cols < m->vocab ? take(c, n * m->hidden, f) : NULL;
    size_t widest = q > m->hidden ? q : m->hidden;
    d->small = take(c, widest > m->intermediate ? widest : m->intermediate, t);
    d->row_max = take(c, n, f);
    d->row_sum = take(c, n, f);
    d->row_target = take(c, n, f);
    d->row_lse = take(c, n, f);
    d->row_loss = take(c, n, f);
    d->cos_sin = take(c, d->options.seq * m->head_dim, f);
    d->ids = take(c, n, sizeof *d->ids);
    d->targets = take(c, n, sizeof *d->targets);
}

size_t decoder_place(struct decoder *d, char *base)
{
    struct cursor c = { .base = base };
    d->logit_cols = decoder_logit_cols(d->config, d->store->dtype, &d->options);
    struct layer unused;
    for (size_t i = 0; i < d->config->layers; i++)
        place_layer(d, d->layer != NULL ? &d->layer[i] : &unused, &c);
    place_shared(d, &c);
    return c.at;
}

size_t decoder_bytes(const struct model_config *config, raia_dtype dtype,
                     const struct decoder_options *options)
{
    struct param_store store = { .dtype = dtype };
    struct decoder d = { .config = config,
                         .store = &store,
                         .options = *options,
                         .tokens = options->batch * options->seq };
    return decoder_place(&d, NULL);
}
