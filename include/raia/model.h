/* model: a model as Hugging Face folders describe it. */
#ifndef RAIA_MODEL_H
#define RAIA_MODEL_H

#include <raia/types.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A decoder's shape and the names of its parameters; no weights. */
typedef struct raia_model_info {
    char family[16]; /* "qwen2", "qwen3", "llama" */
    size_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
    int tied;            /* the head uses the embedding's weight */
    uint64_t parameters; /* a tied weight counted once */
} raia_model_info;

/* Reads NAME: a folder, a hub id that the local Hugging Face cache holds, or a preset ("tiny",
 * "qwen2.5-1.5b", …). */
RAIA_API raia_status raia_model_describe(const char *name, raia_model_info *out);

#ifdef __cplusplus
}
#endif
#endif
