/* types: what every public header stands on: status codes, element types, reductions.
 *
 * Status is the one way a raia function fails.
 * A function that can fail returns a raia_status. RAIA_OK is 0. Anything else comes with a text
 * that says what was wrong, where, and what to do; the text is kept per thread until the next
 * failure on that thread and is read with raia_error(). The function that detects an error writes
 * the text; the functions above it only return. */
#ifndef RAIA_TYPES_H
#define RAIA_TYPES_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAIA_API __attribute__((visibility("default")))

/* X(name, exit code of a program that ends with it, short text) */
#define RAIA_STATUS_MAP(X)                                                                         \
    X(OK, 0, "ok")                                                                                 \
    X(EFAIL, 1, "failed")                                                                          \
    X(EINVAL, 2, "invalid argument")                                                               \
    X(EFABRIC, 3, "fabric requirement not met")                                                    \
    X(ENOTFOUND, 4, "not found")                                                                   \
    X(EFORMAT, 5, "malformed data")                                                                \
    X(EUNSUPPORTED, 6, "not supported")                                                            \
    X(EIO, 7, "input or output failed")                                                            \
    X(ENOMEM, 8, "out of memory")                                                                  \
    X(ETIMEDOUT, 9, "timed out")                                                                   \
    X(EPEER, 10, "another rank or node failed")                                                    \
    X(EREFUSED, 11, "refused by the other side")                                                   \
    X(ESTOPPED, 12, "stopped by request")                                                          \
    X(EBUG, 70, "a defect in raia")

typedef enum raia_status {
#define RAIA_X(name, exit, text) RAIA_##name,
    RAIA_STATUS_MAP(RAIA_X)
#undef RAIA_X
        RAIA_STATUS_COUNT
} raia_status;

/* Text of this thread's last failure; "" when none. Valid until the next failure on this thread. */
RAIA_API const char *raia_error(void);

/* Short text of a status, e.g. "timed out". */
RAIA_API const char *raia_status_text(raia_status status);

/* Exit code with which a program ends for a status (docs/exit-codes.md lists them). */
RAIA_API int raia_exit_code(raia_status status);

/* Returns from the calling function when EXPR is not RAIA_OK. */
#define RAIA_TRY(expr)                                                                             \
    do {                                                                                           \
        raia_status raia_try_status_ = (expr);                                                     \
        if (raia_try_status_ != RAIA_OK)                                                           \
            return raia_try_status_;                                                               \
    } while (0)

/* ---- element types ---- */

/* X(name, bytes, name in commands, name in safetensors) */
#define RAIA_DTYPE_MAP(X)                                                                          \
    X(F32, 4, "f32", "F32")                                                                        \
    X(BF16, 2, "bf16", "BF16")                                                                     \
    X(F16, 2, "f16", "F16")                                                                        \
    X(I32, 4, "i32", "I32")                                                                        \
    X(U32, 4, "u32", "U32")                                                                        \
    X(I64, 8, "i64", "I64")                                                                        \
    X(U8, 1, "u8", "U8")

typedef enum raia_dtype {
#define RAIA_X(name, bytes, text, tag) RAIA_##name,
    RAIA_DTYPE_MAP(RAIA_X)
#undef RAIA_X
        RAIA_DTYPE_COUNT
} raia_dtype;

RAIA_API size_t raia_dtype_size(raia_dtype dtype);      /* bytes of one element */
RAIA_API const char *raia_dtype_name(raia_dtype dtype); /* "bf16" */

/* ---- reductions ---- */

typedef enum raia_op { RAIA_SUM, RAIA_MAX, RAIA_MIN, RAIA_AVG, RAIA_OP_COUNT } raia_op;

#ifdef __cplusplus
}
#endif
#endif
