/* The head and the loss. The logits of a block of vocabulary at a time: kept when all fit their
 * budget, else made again in the backward. */
#include "model/decoder_priv.h"

static bool kept(const struct decoder *d)
{
    return d->logit_cols >= d->config->vocab;
}

static const void *head_row(const struct decoder *d, size_t row)
{
    const char *w = d->store->weight[d->head.weight];
    return w != NULL ? w + row * d->config->hidden * raia_dtype_size(d->store->dtype) : NULL;
}

static void *logit_col(const struct decoder *d, size_t col)
{
    char *l = d->logits;
    return l != NULL ? l + col * raia_dtype_size(d->store->dtype) : NULL;
}

static raia_status make_logits(struct decoder *d, size_t col0, size_t cols)
{
    size_t hidden = d->config->hidden;
    const struct gemm a = { .m = d->n,
                            .n = cols,
                            .k = hidden,
                            .a = d->n_f,
                            .b = head_row(d, col0),
                            .c = d->logits,
                            .lda = hidden,
                            .ldb = hidden,
                            .ldc = d->logit_cols,
                            .tb = true,
                            .dtype = d->store->dtype,
                            .c_dtype = d->store->dtype };
    return d->ops->gemm(d->device, &a);
}

static raia_status losses(struct decoder *d)
{
    size_t vocab = d->config->vocab;
    for (size_t col = 0; col < vocab; col += d->logit_cols) {
        size_t cols = vocab - col < d->logit_cols ? vocab - col : d->logit_cols;
        RAIA_TRY(make_logits(d, col, cols));
        const struct ce_stats a = { .logits = d->logits,
                                    .targets = d->targets,
                                    .max = d->row_max,
                                    .sum = d->row_sum,
                                    .target_logit = d->row_target,
                                    .rows = d->n,
                                    .cols = cols,
                                    .ld = d->logit_cols,
                                    .col0 = col,
                                    .first = col == 0,
                                    .dtype = d->store->dtype };
        RAIA_TRY(d->ops->ce_stats(d->device, &a));
    }
    const struct ce_loss a = { .max = d->row_max,
                               .sum = d->row_sum,
                               .target_logit = d->row_target,
                               .targets = d->targets,
                               .lse = d->row_lse,
                               .loss = d->row_loss,
                               .rows = d->n };
    return d->ops->ce_loss(d->device, &a);
}

raia_status decoder_head_forward(struct decoder *d, double *loss_sum)
{
    *loss_sum = 0;
    RAIA_TRY(decoder_enter(d, d->head.module, PASS_FORWARD));
    if (d->n > 0)
        RAIA_TRY(losses(d));
    RAIA_TRY(decoder_leave(d, d->head.module, PASS_FORWARD));
    if (d->n == 0 || d->device->planning)
        return RAIA_OK;
    RAIA_TRY(d->ops->copy(d->device, d->host_loss, d->row_loss, d->n * sizeof *d->host_loss));
    for (size_t i = 0; i < d->n; i++)
        *loss_sum += d->host_loss[i];
    return RAIA_OK;
}

/* Logits of columns [COL, COL + COLS), which lie at IN in the buffer, become their gradient. */
static raia_status logits_bwd(struct decoder *d, size_t col, size_t cols, void *in)
{
    const struct ce_bwd a = { .logits = in,
                              .targets = d->targets,
                              .lse = d->row_lse,
                              .rows = d->n,
                              .cols = cols,
                              .ld = d->logit_cols,
                              .col0 = col,
                              .scale = d->scale,
                              .dtype = d->store->dtype };
    return d->ops->ce_bwd(d->device, &a);
}

/* The norm's gradient from the logits' gradient; blocks are added up in f32. */
static raia_status to_norm(struct decoder *d, size_t col, size_t cols, const void *in)
{
    size_t hidden = d->config->hidden;
    bool whole = kept(d);
    const struct gemm a = { .m = d->n,
                            .n = hidden,
                            .k = cols,
                            .a = in,
                            .b = head_row(d, col),
                            .c = whole ? d->d_hidden : (void *)d->d_n_f32,
                            .lda = d->logit_cols,
                            .ldb = hidden,
                            .ldc = hidden,
                            .accumulate = !whole && col > 0,
                            .dtype = d->store->dtype,
                            .c_dtype = whole ? d->store->dtype : RAIA_F32 };
    return d->ops->gemm(d->device, &a);
}

static raia_status to_weight(struct decoder *d, size_t rows, const void *in, void *grad)
{
    size_t hidden = d->config->hidden;
    const struct gemm a = { .m = rows,
                            .n = hidden,
                            .k = d->n,
                            .a = in,
                            .b = d->n_f,
                            .c = grad,
                            .lda = d->logit_cols,
                            .ldb = hidden,
                            .ldc = hidden,
                            .ta = true,
                            .dtype = d->store->dtype,
                            .c_dtype = d->store->grad_dtype };
    return d->ops->gemm(d->device, &a);
}

/* Rows [ROW, ROW + ROWS) of the head's gradient at GRAD, in as many blocks of logits as they take.
 */
static raia_status block_bwd(struct decoder *d, size_t row, size_t rows, char *grad)
{
    size_t line = d->config->hidden * raia_dtype_size(d->store->grad_dtype);
    if (kept(d))
        return to_weight(d, rows, logit_col(d, row), grad);
    for (size_t at = 0; at < rows; at += d->logit_cols) {
        size_t cols = rows - at < d->logit_cols ? rows - at : d->logit_cols;
        RAIA_TRY(make_logits(d, row + at, cols));
        RAIA_TRY(logits_bwd(d, row + at, cols, d->logits));
        RAIA_TRY(to_norm(d, row + at, cols, d->logits));
        RAIA_TRY(to_weight(d, cols, d->logits, grad != NULL ? grad + at * line : NULL));
    }
    return RAIA_OK;
}

static raia_status rows_bwd(struct decoder *d)
{
    size_t vocab = d->config->vocab, block = d->store->row_block;
    size_t line = d->config->hidden * raia_dtype_size(d->store->grad_dtype);
    for (size_t row = 0; row < vocab; row += block) {
        size_t rows = vocab - row < block ? vocab - row : block;
        void *grad = NULL;
        RAIA_TRY(d->store->head_rows(d->store, row, rows, &grad));
        if (d->n > 0)
            RAIA_TRY(block_bwd(d, row, rows, grad));
        else if (!d->device->planning)
            RAIA_TRY(d->ops->zero(d->device, grad, rows * line));
        RAIA_TRY(d->store->head_rows_done(d->store, row, rows));
    }
    return RAIA_OK;
}

raia_status decoder_head_backward(struct decoder *d)
{
    RAIA_TRY(decoder_enter(d, d->head.module, PASS_BACKWARD));
    if (d->n > 0 && kept(d)) {
        RAIA_TRY(logits_bwd(d, 0, d->config->vocab, d->logits));
        RAIA_TRY(to_norm(d, 0, d->config->vocab, d->logits));
    }
    RAIA_TRY(rows_bwd(d));
    RAIA_TRY(decoder_leave(d, d->head.module, PASS_BACKWARD));
    if (d->n == 0 || kept(d))
        return RAIA_OK;
    const struct convert a = { .src = d->d_n_f32,
                               .dst = d->d_hidden,
                               .count = d->n * d->config->hidden,
                               .src_dtype = RAIA_F32,
                               .dst_dtype = d->store->dtype };
    return d->ops->convert(d->device, &a);
}
