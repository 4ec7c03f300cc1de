/* SwiGLU, embedding and cross-entropy. */
#include "kernels/cpu/element.h"
#include "kernels/cpu/reference.h"

#include <math.h>

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

raia_status reference_swiglu_fwd(struct device *device, const struct swiglu_fwd *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t i = 0; i < a->n; i++) {
        double gate = element_get(a->gate, a->dtype, i);
        double y = gate * sigmoid(gate) * element_get(a->up, a->dtype, i);
        element_put(a->y, a->dtype, i, (float)y);
    }
    return RAIA_OK;
}

raia_status reference_swiglu_bwd(struct device *device, const struct swiglu_bwd *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t i = 0; i < a->n; i++) {
        double gate = element_get(a->gate, a->dtype, i), up = element_get(a->up, a->dtype, i);
        double dy = element_get(a->dy, a->dtype, i), s = sigmoid(gate);
        element_put(a->dgate, a->dtype, i, (float)(dy * up * s * (1.0 + gate * (1.0 - s))));
        element_put(a->dup, a->dtype, i, (float)(dy * gate * s));
        if (a->y != NULL)
            element_put(a->y, a->dtype, i, (float)(gate * s * up));
    }
    return RAIA_OK;
}

raia_status reference_embed_fwd(struct device *device, const struct embed_fwd *a)
{
    if (device->planning)
        return RAIA_OK;
    size_t bytes = a->cols * raia_dtype_size(a->dtype);
    for (size_t i = 0; i < a->count; i++)
        memcpy((char *)a->y + i * bytes, (const char *)a->table + a->tokens[i] * bytes, bytes);
    return RAIA_OK;
}

/* Adds all occurrences of the token at I, its first, to the token's row. */
static void embed_row(const struct embed_bwd *a, size_t i)
{
    size_t row = a->tokens[i] - a->row0;
    for (size_t c = 0; c < a->cols; c++) {
        float sum = element_get(a->dtable, a->out_dtype, row * a->cols + c);
        for (size_t j = i; j < a->count; j++)
            if (a->tokens[j] == a->tokens[i])
                sum += element_get(a->dy, a->dtype, j * a->cols + c);
        element_put(a->dtable, a->out_dtype, row * a->cols + c, sum);
    }
}

raia_status reference_embed_bwd(struct device *device, const struct embed_bwd *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t i = 0; i < a->count; i++) {
        bool first = a->tokens[i] >= a->row0 && a->tokens[i] - a->row0 < a->rows;
        for (size_t j = 0; j < i && first; j++)
            first = a->tokens[j] != a->tokens[i];
        if (first)
            embed_row(a, i);
    }
    return RAIA_OK;
}

raia_status reference_ce_stats(struct device *device, const struct ce_stats *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t r = 0; r < a->rows; r++) {
        if (a->targets[r] < 0)
            continue;
        float old = a->first ? -INFINITY : a->max[r], max = old;
        for (size_t j = 0; j < a->cols; j++)
            max = fmaxf(max, element_get(a->logits, a->dtype, r * a->ld + j));
        double sum = old == -INFINITY ? 0.0 : a->sum[r] * exp((double)old - max);
        for (size_t j = 0; j < a->cols && max > -INFINITY; j++)
            sum += exp((double)element_get(a->logits, a->dtype, r * a->ld + j) - max);
        a->max[r] = max;
        a->sum[r] = (float)sum;
        size_t target = (size_t)a->targets[r];
        if (target >= a->col0 && target - a->col0 < a->cols)
            a->target_logit[r] = element_get(a->logits, a->dtype, r * a->ld + target - a->col0);
    }
    return RAIA_OK;
}

raia_status reference_ce_loss(struct device *device, const struct ce_loss *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t r = 0; r < a->rows; r++) {
        bool ignored = a->targets[r] < 0;
        double lse = ignored ? 0.0 : log((double)a->sum[r]) + a->max[r];
        a->lse[r] = (float)lse;
        a->loss[r] = ignored ? 0.0f : (float)(lse - a->target_logit[r]);
    }
    return RAIA_OK;
}

raia_status reference_ce_bwd(struct device *device, const struct ce_bwd *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t r = 0; r < a->rows; r++)
        for (size_t j = 0; j < a->cols; j++) {
            size_t i = r * a->ld + j;
            double grad = 0.0;
            if (a->targets[r] >= 0) {
                grad = exp((double)element_get(a->logits, a->dtype, i) - a->lse[r]);
                grad -= (size_t)a->targets[r] == a->col0 + j;
            }
            element_put(a->logits, a->dtype, i, (float)(grad * a->scale));
        }
    return RAIA_OK;
}
