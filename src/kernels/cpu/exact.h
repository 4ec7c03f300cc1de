/* X(type, name, arguments): the kernels of exact.c. */
X(void, embed_row, (const struct embed_bwd *a, const uint64_t *keys, size_t count, float *sum))
X(void, adamw, (const struct adamw *a, const struct adamw_scalars *s, size_t from, size_t to))
X(double, sq_sum, (const struct sq_sum *a, size_t from, size_t to))
X(void, reduce, (const struct reduce *a, size_t from, size_t to))
X(void, convert, (const struct convert *a, size_t from, size_t to))
X(void, random_normal, (const struct random_normal *a, size_t from, size_t to))
