/* What the decoder's files share: the places of its modules and buffers. */
#ifndef RAIA_DECODER_PRIV_H
#define RAIA_DECODER_PRIV_H

#include "model/model.h"

/* A module with a weight (and a bias): indices into the tree; -1: none. */
struct leaf {
    int module, weight, bias;
};

struct layer {
    int module, attn, mlp;
    struct leaf norm1, q, k, v, o, q_norm, k_norm, norm2, gate, up, down;
    /* What the backward needs, T but for the statistics: residual before each norm, the norms'
     * outputs, projections (q and k before their norm where there is one), after rope, attention's
     * output. */
    void *sum1, *n1, *q_raw, *k_raw, *q_out, *k_out, *v_out, *att, *sum2, *n2, *gate_out, *up_out;
    float *rstd1, *rstd2, *q_rstd, *k_rstd, *lse;
};

struct decoder {
    struct device *device;
    const struct ops *ops;
    const struct model_config *config;
    const struct tree *tree;
    struct param_store *store;
    struct decoder_options options;
    size_t tokens; /* of the largest batch */

    int root, model, list; /* modules */
    struct leaf embed, norm, head;
    struct layer *layer; /* [layers] */

    void *memory; /* of the device: everything below lies in it */
    size_t bytes;
    void *act, *d_act;               /* [tokens, intermediate] */
    void *hidden, *d_hidden, *d_sum; /* [tokens, hidden]: a branch's output, its gradient, the
                                        residual's gradient */
    void *d_q, *d_att, *d_k, *d_v;
    void *sum_f, *n_f;
    float *rstd_f;
    void *logits;   /* [tokens, logit_cols] */
    float *d_n_f32; /* [tokens, hidden] sum over vocabulary blocks; NULL when one block is all */
    void *small;    /* one vector's gradient in T on its way to another dtype */
    float *row_max, *row_sum, *row_target, *row_lse, *row_loss;
    float *cos_sin;
    uint32_t *ids;
    int32_t *targets;
    size_t logit_cols; /* vocabulary columns that fit the budget */

    float *host_loss; /* host memory, [tokens] each */
    int32_t *host_targets;

    size_t batch, n; /* of the step: samples, tokens */
    float scale;
};

/* Width of vocabulary blocks: all of it when the budget allows. */
size_t decoder_logit_cols(const struct model_config *config, raia_dtype dtype,
                          const struct decoder_options *options);
/* Places all buffers behind BASE (NULL: counts only) and returns their bytes. */
size_t decoder_place(struct decoder *d, char *base);

raia_status decoder_enter(struct decoder *d, int module, enum pass pass);
raia_status decoder_leave(struct decoder *d, int module, enum pass pass);
/* OUT[n, rows] = X[n, cols] * W^T (+ bias), W the leaf's weight [rows, cols]. */
raia_status decoder_linear(struct decoder *d, const struct leaf *leaf, const void *x, void *out);
/* DX[n, cols] (+)= DY[n, rows] * W and the leaf's gradients; within enter and leave. */
raia_status decoder_linear_bwd(struct decoder *d, const struct leaf *leaf, const void *x,
                               const void *dy, void *dx, bool accumulate);
/* DX = ADD + gradient through the norm, and the weight's gradient; enters and leaves. */
raia_status decoder_norm(struct decoder *d, const struct leaf *leaf, const void *x, const void *add,
                         void *sum, void *y, float *rstd);
raia_status decoder_norm_bwd(struct decoder *d, const struct leaf *leaf, const void *x,
                             const void *dy, const void *add, void *dx, const float *rstd);
/* A vector's gradient [count] that an operation writes in T: where to, and its way on to the store.
 */
void *decoder_small_grad(struct decoder *d, int param);
raia_status decoder_small_done(struct decoder *d, int param);

/* d->sum of the layer before (or the embedding) and d->hidden in, d->hidden out. */
raia_status decoder_layer_forward(struct decoder *d, size_t index);
raia_status decoder_layer_backward(struct decoder *d, size_t index);

/* Logits, losses; KEEP: as the backward needs them. */
raia_status decoder_head_forward(struct decoder *d, double *loss_sum);
raia_status decoder_head_backward(struct decoder *d);

#endif
