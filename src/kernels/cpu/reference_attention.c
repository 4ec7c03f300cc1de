#include "kernels/cpu/element.h"
#include "kernels/cpu/reference.h"

#include <math.h>

/* Where vector (token, head) of q, k, v or out starts. */
static size_t at(size_t stride, size_t head_dim, size_t token, size_t head)
{
    return token * stride + head * head_dim;
}

static double dot(const struct attention_fwd *a, const void *x, size_t i, const void *y, size_t j)
{
    double sum = 0.0;
    for (size_t d = 0; d < a->head_dim; d++)
        sum += (double)element_get(x, a->dtype, i + d) * element_get(y, a->dtype, j + d);
    return sum;
}

/* Scaled score of query row I with key row J of one sample. */
static double score(const struct attention_fwd *a, size_t batch, size_t head, size_t i, size_t j)
{
    size_t q = at(a->q_stride, a->head_dim, batch * a->seq + i, head);
    size_t k = at(a->k_stride, a->head_dim, batch * a->seq + j, head / (a->heads / a->kv_heads));
    return dot(a, a->q, q, a->k, k) / sqrt((double)a->head_dim);
}

static void attention_row(const struct attention_fwd *a, size_t batch, size_t head, size_t i)
{
    size_t group = head / (a->heads / a->kv_heads);
    size_t out = at(a->out_stride, a->head_dim, batch * a->seq + i, head);
    double max = -INFINITY, sum = 0.0, value[256] = { 0 }; /* head_dim <= 256 */
    for (size_t j = 0; j <= i; j++)
        max = fmax(max, score(a, batch, head, i, j));
    for (size_t j = 0; j <= i; j++) {
        double p = exp(score(a, batch, head, i, j) - max);
        size_t v = at(a->v_stride, a->head_dim, batch * a->seq + j, group);
        sum += p;
        for (size_t d = 0; d < a->head_dim; d++)
            value[d] += p * element_get(a->v, a->dtype, v + d);
    }
    for (size_t d = 0; d < a->head_dim; d++)
        element_put(a->out, a->dtype, out + d, (float)(value[d] / sum));
    a->lse[(batch * a->heads + head) * a->seq + i] = (float)(log(sum) + max);
}

raia_status reference_attention_fwd(struct device *device, const struct attention_fwd *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t batch = 0; batch < a->batch; batch++)
        for (size_t head = 0; head < a->heads; head++)
            for (size_t i = 0; i < a->seq; i++)
                attention_row(a, batch, head, i);
    return RAIA_OK;
}

/* One (query row, key row) pair: its probability and the gradient of its scaled score. */
struct pair {
    double p, ds;
};

static struct pair pair_grad(const struct attention_bwd *b, size_t batch, size_t head, size_t i,
                             size_t j)
{
    const struct attention_fwd *a = &b->fwd;
    size_t group = head / (a->heads / a->kv_heads), row = batch * a->seq + i;
    size_t out = at(a->out_stride, a->head_dim, row, head);
    size_t v = at(a->v_stride, a->head_dim, batch * a->seq + j, group);
    struct pair pair;
    pair.p = exp(score(a, batch, head, i, j) - a->lse[(batch * a->heads + head) * a->seq + i]);
    double delta = dot(a, b->dout, out, a->out, out);
    pair.ds = pair.p * (dot(a, b->dout, out, a->v, v) - delta) / sqrt((double)a->head_dim);
    return pair;
}

static void query_grad(const struct attention_bwd *b, size_t batch, size_t head, size_t i)
{
    const struct attention_fwd *a = &b->fwd;
    size_t group = head / (a->heads / a->kv_heads);
    double sum[256] = { 0 }; /* head_dim <= 256 */
    for (size_t j = 0; j <= i; j++) {
        struct pair pair = pair_grad(b, batch, head, i, j);
        size_t k = at(a->k_stride, a->head_dim, batch * a->seq + j, group);
        for (size_t d = 0; d < a->head_dim; d++)
            sum[d] += pair.ds * element_get(a->k, a->dtype, k + d);
    }
    size_t q = at(a->q_stride, a->head_dim, batch * a->seq + i, head);
    for (size_t d = 0; d < a->head_dim; d++)
        element_put(b->dq, a->dtype, q + d, (float)sum[d]);
}

static void key_value_grad(const struct attention_bwd *b, size_t batch, size_t group, size_t j)
{
    const struct attention_fwd *a = &b->fwd;
    size_t share = a->heads / a->kv_heads, row = batch * a->seq + j;
    double dk[256] = { 0 }, dv[256] = { 0 };
    for (size_t head = group * share; head < (group + 1) * share; head++)
        for (size_t i = j; i < a->seq; i++) {
            struct pair pair = pair_grad(b, batch, head, i, j);
            size_t q = at(a->q_stride, a->head_dim, batch * a->seq + i, head);
            size_t out = at(a->out_stride, a->head_dim, batch * a->seq + i, head);
            for (size_t d = 0; d < a->head_dim; d++) {
                dk[d] += pair.ds * element_get(a->q, a->dtype, q + d);
                dv[d] += pair.p * element_get(b->dout, a->dtype, out + d);
            }
        }
    for (size_t d = 0; d < a->head_dim; d++) {
        element_put(b->dk, a->dtype, at(a->k_stride, a->head_dim, row, group) + d, (float)dk[d]);
        element_put(b->dv, a->dtype, at(a->v_stride, a->head_dim, row, group) + d, (float)dv[d]);
    }
}

raia_status reference_attention_bwd(struct device *device, const struct attention_bwd *b)
{
    if (device->planning)
        return RAIA_OK;
    const struct attention_fwd *a = &b->fwd;
    for (size_t batch = 0; batch < a->batch; batch++)
        for (size_t i = 0; i < a->seq; i++) {
            for (size_t head = 0; head < a->heads; head++)
                query_grad(b, batch, head, i);
            for (size_t group = 0; group < a->kv_heads; group++)
                key_value_grad(b, batch, group, i);
        }
    return RAIA_OK;
}
