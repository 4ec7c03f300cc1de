/* Matrix products by oneDNN. Each primitive is compiled for one thread and run by each thread of
 * the pool on its part: oneDNN's own threads (OpenMP's) would spin between products and make a
 * second set beside ours. The library is opened when the first device is: it takes longer to load
 * than the rest of the program. */
#include "base/base.h"
#include "kernels/cpu/cpu.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

#define DNNL_MAP(X)                                                                                \
    X(dnnl_engine_create)                                                                          \
    X(dnnl_engine_destroy)                                                                         \
    X(dnnl_stream_create)                                                                          \
    X(dnnl_stream_destroy)                                                                         \
    X(dnnl_memory_desc_init_by_strides)                                                            \
    X(dnnl_memory_desc_get_size)                                                                   \
    X(dnnl_memory_create)                                                                          \
    X(dnnl_memory_destroy)                                                                         \
    X(dnnl_memory_set_data_handle)                                                                 \
    X(dnnl_matmul_desc_init)                                                                       \
    X(dnnl_primitive_attr_create)                                                                  \
    X(dnnl_primitive_attr_destroy)                                                                 \
    X(dnnl_primitive_attr_set_scratchpad_mode)                                                     \
    X(dnnl_primitive_attr_set_post_ops)                                                            \
    X(dnnl_post_ops_create)                                                                        \
    X(dnnl_post_ops_destroy)                                                                       \
    X(dnnl_post_ops_append_sum)                                                                    \
    X(dnnl_primitive_desc_create)                                                                  \
    X(dnnl_primitive_desc_destroy)                                                                 \
    X(dnnl_primitive_desc_query_md)                                                                \
    X(dnnl_primitive_create)                                                                       \
    X(dnnl_primitive_destroy)                                                                      \
    X(dnnl_primitive_execute)

static struct {
#define X(name) __typeof__(&name) name;
    DNNL_MAP(X)
#undef X
    void (*omp_set_num_threads)(int);
} lib;
static raia_status lib_status;
static char lib_error[512];

static void load_library(void)
{
    void *handle = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        snprintf(lib_error, sizeof lib_error,
                 "cannot load oneDNN, which multiplies matrices: %s; install Debian's libdnnl2, or "
                 "set RAIA_CPU=reference, which is slow",
                 dlerror());
        lib_status = RAIA_ENOTFOUND;
        return;
    }
#define X(name)                                                                                    \
    *(void **)&lib.name = dlsym(handle, #name);                                                    \
    if (lib.name == NULL && lib_status == RAIA_OK) {                                               \
        snprintf(lib_error, sizeof lib_error, "this oneDNN lacks %s: version 2.6 is needed",       \
                 #name);                                                                           \
        lib_status = RAIA_EUNSUPPORTED;                                                            \
    }
    DNNL_MAP(X)
#undef X
    *(void **)&lib.omp_set_num_threads = dlsym(handle, "omp_set_num_threads");
}

static raia_status open_library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_library);
    return lib_status == RAIA_OK ? RAIA_OK : fail(lib_status, "%s", lib_error);
}

/* ---- compiled products ---- */

struct key {
    size_t m, n, k, lda, ldb, ldc;
    uint8_t ta, tb, accumulate, bias, dtype, c_dtype, pad[2];
};

enum { ARG_A, ARG_B, ARG_C, ARG_BIAS, ARG_SCRATCH, ARGS };
static const int arg_names[ARGS] = { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS,
                                     DNNL_ARG_SCRATCHPAD };

struct product {
    struct key key;
    dnnl_primitive_t primitive;
    dnnl_memory_t (*memory)[ARGS]; /* [threads]; bias NULL without one */
};

struct gemms {
    int threads;
    dnnl_engine_t engine;
    dnnl_stream_t *stream; /* [threads] */
    bool *single;          /* [threads]: has been told to use one OpenMP thread */
    char **scratch;        /* [threads] of scratch_bytes */
    size_t scratch_bytes;
    struct product **table; /* by hash, SLOTS of them, linear probing */
    int count;
};
enum { SLOTS = 4096 };

static raia_status check(dnnl_status_t status, const char *what)
{
    return status == dnnl_success ? RAIA_OK
                                  : fail(RAIA_EUNSUPPORTED, "oneDNN: %s: status %d", what, status);
}

static struct key key_of(const struct gemm *a)
{
    return (struct key){ .m = a->m,
                         .n = a->n,
                         .k = a->k,
                         .lda = a->lda,
                         .ldb = a->ldb,
                         .ldc = a->ldc,
                         .ta = a->ta,
                         .tb = a->tb,
                         .accumulate = a->accumulate,
                         .bias = a->bias != NULL,
                         .dtype = (uint8_t)a->dtype,
                         .c_dtype = (uint8_t)a->c_dtype };
}

/* The product's place, or the free one where it belongs. */
static struct product **slot_of(struct gemms *g, const struct key *key)
{
    size_t i = str_hash(key, sizeof *key) % SLOTS;
    while (g->table[i] != NULL && memcmp(&g->table[i]->key, key, sizeof *key) != 0)
        i = (i + 1) % SLOTS;
    return &g->table[i];
}

static dnnl_data_type_t type_of(uint8_t dtype)
{
    return dtype == RAIA_F32 ? dnnl_f32 : dtype == RAIA_BF16 ? dnnl_bf16 : dnnl_f16;
}

static raia_status describe(dnnl_memory_desc_t *out, size_t rows, size_t cols, size_t ld,
                            bool transposed, uint8_t dtype)
{
    dnnl_dims_t dims = { (dnnl_dim_t)rows, (dnnl_dim_t)cols };
    dnnl_dims_t strides = { transposed ? 1 : (dnnl_dim_t)ld, transposed ? (dnnl_dim_t)ld : 1 };
    return check(lib.dnnl_memory_desc_init_by_strides(out, 2, dims, type_of(dtype), strides),
                 "a matrix's description");
}

static raia_status make_attributes(bool accumulate, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;
    RAIA_TRY(check(lib.dnnl_primitive_attr_create(out), "attributes"));
    RAIA_TRY(check(lib.dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user),
                   "scratchpad"));
    if (!accumulate)
        return RAIA_OK;
    RAIA_TRY(check(lib.dnnl_post_ops_create(&ops), "post-ops"));
    raia_status status = check(lib.dnnl_post_ops_append_sum(ops, 1.0f), "accumulation");
    if (status == RAIA_OK)
        status = check(lib.dnnl_primitive_attr_set_post_ops(*out, ops), "post-ops");
    lib.dnnl_post_ops_destroy(ops);
    return status;
}

static raia_status grow_scratch(struct gemms *g, size_t bytes)
{
    if (bytes <= g->scratch_bytes)
        return RAIA_OK;
    bytes = (bytes + 4095) / 4096 * 4096;
    for (int t = 0; t < g->threads; t++) {
        char *more = aligned_alloc(4096, bytes);
        if (more == NULL)
            return fail(RAIA_ENOMEM, "a matrix product needs %zu bytes of scratch", bytes);
        free(g->scratch[t]);
        g->scratch[t] = more;
    }
    g->scratch_bytes = bytes;
    return RAIA_OK;
}

static raia_status make_memories(struct gemms *g, struct product *p,
                                 const dnnl_memory_desc_t *const desc[ARGS])
{
    RAIA_TRY(MEM_NEW(&p->memory, (size_t)g->threads));
    for (int t = 0; t < g->threads; t++)
        for (int i = 0; i < ARGS; i++)
            if (desc[i] != NULL)
                RAIA_TRY(check(
                    lib.dnnl_memory_create(&p->memory[t][i], desc[i], g->engine, DNNL_MEMORY_NONE),
                    "a matrix"));
    return RAIA_OK;
}

static raia_status build(struct gemms *g, struct product *p, dnnl_primitive_attr_t attr)
{
    const struct key *k = &p->key;
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd = NULL;
    RAIA_TRY(describe(&a, k->m, k->k, k->lda, k->ta, k->dtype));
    RAIA_TRY(describe(&b, k->k, k->n, k->ldb, k->tb, k->dtype));
    RAIA_TRY(describe(&c, k->m, k->n, k->ldc, false, k->c_dtype));
    RAIA_TRY(describe(&bias, 1, k->n, k->n, false, k->dtype));
    RAIA_TRY(check(lib.dnnl_matmul_desc_init(&desc, &a, &b, k->bias ? &bias : NULL, &c), "matmul"));
    RAIA_TRY(check(lib.dnnl_primitive_desc_create(&pd, &desc, attr, g->engine, NULL), "matmul"));
    raia_status status = check(lib.dnnl_primitive_create(&p->primitive, pd), "matmul's code");
    const dnnl_memory_desc_t *pad =
        lib.dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    if (status == RAIA_OK)
        status = grow_scratch(g, lib.dnnl_memory_desc_get_size(pad));
    const dnnl_memory_desc_t *const all[ARGS] = { &a, &b, &c, k->bias ? &bias : NULL, pad };
    if (status == RAIA_OK)
        status = make_memories(g, p, all);
    lib.dnnl_primitive_desc_destroy(pd);
    return status;
}

static void free_product(struct gemms *g, struct product *p)
{
    if (p == NULL)
        return;
    for (int t = 0; p->memory != NULL && t < g->threads; t++)
        for (int i = 0; i < ARGS; i++)
            if (p->memory[t][i] != NULL)
                lib.dnnl_memory_destroy(p->memory[t][i]);
    if (p->primitive != NULL)
        lib.dnnl_primitive_destroy(p->primitive);
    free(p->memory);
    free(p);
}

/* oneDNN asks OpenMP for its threads, and each of our threads has a count of its own there. */
static void be_single(struct gemms *g, int thread)
{
    if (g->single[thread])
        return;
    g->single[thread] = true;
    if (lib.omp_set_num_threads != NULL)
        lib.omp_set_num_threads(1);
}

raia_status gemm_plan(struct gemms *g, const struct gemm *a)
{
    const struct key key = key_of(a);
    struct product **slot = slot_of(g, &key), *p;
    dnnl_primitive_attr_t attr = NULL;
    if (*slot != NULL)
        return RAIA_OK;
    if (g->count >= SLOTS / 2)
        return fail(RAIA_EUNSUPPORTED, "more than %d shapes of matrix products", SLOTS / 2);
    be_single(g, 0);
    RAIA_TRY(MEM_NEW(&p, 1));
    p->key = key;
    raia_status status = make_attributes(a->accumulate, &attr);
    if (status == RAIA_OK)
        status = build(g, p, attr);
    if (attr != NULL)
        lib.dnnl_primitive_attr_destroy(attr);
    if (status != RAIA_OK) {
        free_product(g, p);
        return fail_in(status, "product %zu x %zu x %zu of %s", a->m, a->n, a->k,
                       raia_dtype_name(a->dtype));
    }
    *slot = p;
    g->count++;
    return RAIA_OK;
}

raia_status gemm_run(struct gemms *g, int thread, const struct gemm *a)
{
    const struct key key = key_of(a);
    const struct product *p = *slot_of(g, &key);
    if (p == NULL)
        return fail(RAIA_EBUG, "a matrix product that was not planned");
    be_single(g, thread);
    void *const data[ARGS] = { (void *)a->a, (void *)a->b, a->c, (void *)a->bias,
                               g->scratch[thread] };
    dnnl_exec_arg_t args[ARGS];
    int count = 0;
    for (int i = 0; i < ARGS; i++) {
        dnnl_memory_t memory = p->memory[thread][i];
        if (memory == NULL)
            continue;
        lib.dnnl_memory_set_data_handle(memory, data[i]);
        args[count++] = (dnnl_exec_arg_t){ arg_names[i], memory };
    }
    return check(lib.dnnl_primitive_execute(p->primitive, g->stream[thread], count, args),
                 "running a matrix product");
}

static raia_status open_gemms(struct gemms *g)
{
    size_t threads = (size_t)g->threads;
    RAIA_TRY(open_library());
    RAIA_TRY(MEM_NEW(&g->stream, threads));
    RAIA_TRY(MEM_NEW(&g->single, threads));
    RAIA_TRY(MEM_NEW(&g->scratch, threads));
    RAIA_TRY(MEM_NEW(&g->table, SLOTS));
    RAIA_TRY(check(lib.dnnl_engine_create(&g->engine, dnnl_cpu, 0), "engine"));
    for (size_t t = 0; t < threads; t++)
        RAIA_TRY(check(lib.dnnl_stream_create(&g->stream[t], g->engine, dnnl_stream_in_order),
                       "stream"));
    return grow_scratch(g, 4096);
}

raia_status gemms_open(struct gemms **out, int threads)
{
    struct gemms *g;
    RAIA_TRY(MEM_NEW(&g, 1));
    g->threads = threads;
    raia_status status = open_gemms(g);
    if (status != RAIA_OK) {
        gemms_close(g);
        return status;
    }
    *out = g;
    return RAIA_OK;
}

void gemms_close(struct gemms *g)
{
    if (g == NULL)
        return;
    for (int i = 0; g->table != NULL && i < SLOTS; i++)
        free_product(g, g->table[i]);
    for (int t = 0; t < g->threads; t++) {
        if (g->stream != NULL && g->stream[t] != NULL)
            lib.dnnl_stream_destroy(g->stream[t]);
        if (g->scratch != NULL)
            free(g->scratch[t]);
    }
    if (g->engine != NULL)
        lib.dnnl_engine_destroy(g->engine);
    free(g->table);
    free(g->scratch);
    free(g->single);
    free(g->stream);
    free(g);
}
