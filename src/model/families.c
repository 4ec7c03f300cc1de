#include "model/families.h"

#include <string.h>

/* Defaults are those of transformers' configuration classes. */
const struct family families[] = {
    { .name = "qwen2",
      .architecture = "Qwen2ForCausalLM",
      .bit = FAMILY_QWEN2,
      .qkv_bias = true,
      .max_positions = 32768,
      .kv_heads_required = true,
      .writes_window_fields = true },
    { .name = "qwen3",
      .architecture = "Qwen3ForCausalLM",
      .bit = FAMILY_QWEN3,
      .qk_norm = true,
      .head_dim = 128,
      .max_positions = 32768,
      .kv_heads_required = true,
      .writes_bias_fields = true,
      .writes_window_fields = true },
    { .name = "llama",
      .architecture = "LlamaForCausalLM",
      .bit = FAMILY_LLAMA,
      .max_positions = 2048,
      .writes_bias_fields = true },
    { .name = NULL },
};

const struct family *family_find(const char *name)
{
    for (const struct family *f = families; f->name != NULL; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}
