/* RMS norm and rotary embedding. */
#include "kernels/cpu/element.h"
#include "kernels/cpu/reference.h"

#include <math.h>

/* 1/sqrt(mean(x²) + eps) of N elements from element I on */
static float inverse_rms(const void *x, raia_dtype dtype, size_t i, size_t n, float eps)
{
    double squares = 0.0;
    for (size_t j = 0; j < n; j++) {
        double value = element_get(x, dtype, i + j);
        squares += value * value;
    }
    return (float)(1.0 / sqrt(squares / (double)n + eps));
}

raia_status reference_rmsnorm_fwd(struct device *device, const struct rmsnorm_fwd *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t r = 0; r < a->rows; r++) {
        const void *s = a->x;
        size_t first = r * a->cols;
        if (a->add != NULL) {
            for (size_t i = first; i < first + a->cols; i++)
                element_put(a->sum, a->dtype, i,
                            element_get(a->x, a->dtype, i) + element_get(a->add, a->dtype, i));
            s = a->sum;
        }
        a->rstd[r] = inverse_rms(s, a->dtype, first, a->cols, a->eps);
        for (size_t j = 0; j < a->cols; j++) {
            float norm = element_round(a->dtype, element_get(s, a->dtype, first + j) * a->rstd[r]);
            element_put(a->y, a->dtype, first + j, norm * element_get(a->w, a->dtype, j));
        }
    }
    return RAIA_OK;
}

raia_status reference_rmsnorm_bwd(struct device *device, const struct rmsnorm_bwd *a)
{
    if (device->planning)
        return RAIA_OK;
    /* dw before dx, which may overwrite dy */
    for (size_t j = 0; j < a->cols; j++) {
        double sum = 0.0;
        for (size_t r = 0; r < a->rows; r++) {
            size_t i = r * a->cols + j;
            sum += (double)element_get(a->dy, a->dtype, i) *
                   element_round(a->dtype, element_get(a->x, a->dtype, i) * a->rstd[r]);
        }
        element_put(a->dw, a->dtype, j, (float)sum);
    }
    for (size_t r = 0; r < a->rows; r++) {
        double dot = 0.0, rstd = a->rstd[r];
        for (size_t j = 0; j < a->cols; j++) {
            size_t i = r * a->cols + j;
            dot += (double)element_get(a->dy, a->dtype, i) * element_get(a->w, a->dtype, j) *
                   element_get(a->x, a->dtype, i) * rstd;
        }
        dot /= (double)a->cols;
        for (size_t j = 0; j < a->cols; j++) {
            size_t i = r * a->cols + j;
            double dnorm = (double)element_get(a->dy, a->dtype, i) * element_get(a->w, a->dtype, j);
            double dx = rstd * (dnorm - element_get(a->x, a->dtype, i) * rstd * dot);
            if (a->add != NULL)
                dx += element_get(a->add, a->dtype, i);
            element_put(a->dx, a->dtype, i, (float)dx);
        }
    }
    return RAIA_OK;
}

/* One half-split rotation: (low, high) turned by the angle, or back. */
static void rotate(float *low, float *high, float c, float s)
{
    float turned = *low * c - *high * s;
    *high = *high * c + *low * s;
    *low = turned;
}

static void rope_head(const struct rope_fwd *a, size_t token, size_t head)
{
    size_t half = a->head_dim / 2, from = token * a->stride + head * a->head_dim;
    size_t to = token * a->y_stride + head * a->head_dim;
    const float *angle = a->cos_sin + token % a->seq * a->head_dim;
    float rstd = 1.0f;
    if (a->norm_w != NULL) {
        rstd = inverse_rms(a->x, a->dtype, from, a->head_dim, a->eps);
        a->rstd[token * a->heads + head] = rstd;
    }
    for (size_t j = 0; j < half; j++) {
        float low = element_get(a->x, a->dtype, from + j);
        float high = element_get(a->x, a->dtype, from + half + j);
        if (a->norm_w != NULL) {
            low = element_round(a->dtype, element_round(a->dtype, low * rstd) *
                                              element_get(a->norm_w, a->dtype, j));
            high = element_round(a->dtype, element_round(a->dtype, high * rstd) *
                                               element_get(a->norm_w, a->dtype, half + j));
        }
        rotate(&low, &high, angle[j], angle[half + j]);
        element_put(a->y, a->dtype, to + j, low);
        element_put(a->y, a->dtype, to + half + j, high);
    }
}

raia_status reference_rope_fwd(struct device *device, const struct rope_fwd *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t token = 0; token < a->tokens; token++)
        for (size_t head = 0; head < a->heads; head++)
            rope_head(a, token, head);
    return RAIA_OK;
}

/* The gradient before the rotation, element J of a head. */
static double unrotated(const struct rope_bwd *a, size_t token, size_t head, size_t j)
{
    size_t half = a->head_dim / 2, k = j % half, from = token * a->stride + head * a->head_dim;
    const float *angle = a->cos_sin + token % a->seq * a->head_dim;
    float low = element_get(a->dy, a->dtype, from + k);
    float high = element_get(a->dy, a->dtype, from + half + k);
    rotate(&low, &high, angle[k], -angle[half + k]);
    return j < half ? low : high;
}

static void rope_norm_weight_grad(const struct rope_bwd *a)
{
    for (size_t j = 0; j < a->head_dim; j++) {
        double sum = 0.0;
        for (size_t token = 0; token < a->tokens; token++)
            for (size_t head = 0; head < a->heads; head++) {
                size_t i = token * a->stride + head * a->head_dim + j;
                float norm = element_get(a->x, a->dtype, i) * a->rstd[token * a->heads + head];
                sum += unrotated(a, token, head, j) * element_round(a->dtype, norm);
            }
        element_put(a->dnorm_w, a->dtype, j, (float)sum);
    }
}

static void rope_bwd_head(const struct rope_bwd *a, size_t token, size_t head)
{
    double grad[256], dot = 0.0, rstd = 1.0; /* head_dim <= 256 */
    size_t from = token * a->stride + head * a->head_dim;
    size_t to = token * a->dx_stride + head * a->head_dim;
    for (size_t j = 0; j < a->head_dim; j++)
        grad[j] = unrotated(a, token, head, j);
    if (a->norm_w != NULL) {
        rstd = a->rstd[token * a->heads + head];
        for (size_t j = 0; j < a->head_dim; j++) {
            grad[j] *= element_get(a->norm_w, a->dtype, j);
            dot += grad[j] * element_get(a->x, a->dtype, from + j) * rstd;
        }
        dot /= (double)a->head_dim;
        for (size_t j = 0; j < a->head_dim; j++)
            grad[j] = rstd * (grad[j] - element_get(a->x, a->dtype, from + j) * rstd * dot);
    }
    for (size_t j = 0; j < a->head_dim; j++)
        element_put(a->dx, a->dtype, to + j, (float)grad[j]);
}

raia_status reference_rope_bwd(struct device *device, const struct rope_bwd *a)
{
    if (device->planning)
        return RAIA_OK;
    if (a->norm_w != NULL)
        rope_norm_weight_grad(a);
    for (size_t token = 0; token < a->tokens; token++)
        for (size_t head = 0; head < a->heads; head++)
            rope_bwd_head(a, token, head);
    return RAIA_OK;
}
