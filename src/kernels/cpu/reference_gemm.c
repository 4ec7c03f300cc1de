#include "kernels/cpu/element.h"
#include "kernels/cpu/reference.h"

raia_status reference_gemm(struct device *device, const struct gemm *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t i = 0; i < a->m; i++)
        for (size_t j = 0; j < a->n; j++) {
            double sum = a->accumulate ? element_get(a->c, a->c_dtype, i * a->ldc + j) : 0.0;
            for (size_t k = 0; k < a->k; k++)
                sum +=
                    (double)element_get(a->a, a->dtype, a->ta ? k * a->lda + i : i * a->lda + k) *
                    element_get(a->b, a->dtype, a->tb ? j * a->ldb + k : k * a->ldb + j);
            if (a->bias != NULL)
                sum += element_get(a->bias, a->dtype, j);
            element_put(a->c, a->c_dtype, i * a->ldc + j, (float)sum);
        }
    return RAIA_OK;
}

raia_status reference_col_sum(struct device *device, const struct col_sum *a)
{
    if (device->planning)
        return RAIA_OK;
    for (size_t j = 0; j < a->cols; j++) {
        double sum = 0.0;
        for (size_t i = 0; i < a->rows; i++)
            sum += element_get(a->x, a->dtype, i * a->cols + j);
        element_put(a->out, a->dtype, j, (float)sum);
    }
    return RAIA_OK;
}
