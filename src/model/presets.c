/* presets: the shapes of published models, and a tiny one for tests and demonstrations. */
#include "model/families.h"

#include <string.h>

static const struct preset {
    const char *family;
    struct model_config config;
} presets[] = {
    /* a vocabulary that holds every byte (0..255), 256 as end of text, and some to spare */
    { "qwen2",
      { .hidden = 64,
        .intermediate = 192,
        .layers = 4,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 16,
        .vocab = 320,
        .rms_eps = 1e-6,
        .rope_theta = 10000,
        .init_std = 0.02,
        .max_positions = 2048,
        .tied = true,
        .bos = -1,
        .eos = 256,
        .dtype = RAIA_F32 } },
    { "qwen2",
      { .hidden = 896,
        .intermediate = 4864,
        .layers = 24,
        .heads = 14,
        .kv_heads = 2,
        .head_dim = 64,
        .vocab = 151936,
        .rms_eps = 1e-6,
        .rope_theta = 1e6,
        .init_std = 0.02,
        .max_positions = 32768,
        .tied = true,
        .bos = 151643,
        .eos = 151643,
        .dtype = RAIA_BF16 } },
    { "qwen2",
      { .hidden = 1536,
        .intermediate = 8960,
        .layers = 28,
        .heads = 12,
        .kv_heads = 2,
        .head_dim = 128,
        .vocab = 151936,
        .rms_eps = 1e-6,
        .rope_theta = 1e6,
        .init_std = 0.02,
        .max_positions = 131072,
        .tied = true,
        .bos = 151643,
        .eos = 151643,
        .dtype = RAIA_BF16 } },
    { "qwen3",
      { .hidden = 1024,
        .intermediate = 3072,
        .layers = 28,
        .heads = 16,
        .kv_heads = 8,
        .head_dim = 128,
        .vocab = 151936,
        .rms_eps = 1e-6,
        .rope_theta = 1e6,
        .init_std = 0.02,
        .max_positions = 40960,
        .tied = true,
        .bos = 151643,
        .eos = 151645,
        .dtype = RAIA_BF16 } },
    { "llama",
      { .hidden = 576,
        .intermediate = 1536,
        .layers = 30,
        .heads = 9,
        .kv_heads = 3,
        .head_dim = 64,
        .vocab = 49152,
        .rms_eps = 1e-5,
        .rope_theta = 1e5,
        .init_std = 1.0 / 24,
        .max_positions = 8192,
        .tied = true,
        .bos = 0,
        .eos = 0,
        .dtype = RAIA_BF16 } },
    { "llama",
      { .hidden = 2048,
        .intermediate = 8192,
        .layers = 16,
        .heads = 32,
        .kv_heads = 8,
        .head_dim = 64,
        .vocab = 128256,
        .rms_eps = 1e-5,
        .rope_theta = 5e5,
        .init_std = 0.02,
        .rope_type = ROPE_LLAMA3,
        .rope_factor = 32,
        .rope_low_freq = 1,
        .rope_high_freq = 4,
        .rope_original_max = 8192,
        .max_positions = 131072,
        .tied = true,
        .bos = 128000,
        .eos = 128001,
        .dtype = RAIA_BF16 } },
};
static const char *const names[] = {
    "tiny", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen3-0.6b", "smollm2-135m", "llama-3.2-1b", NULL,
};
_Static_assert(sizeof names / sizeof names[0] == sizeof presets / sizeof presets[0] + 1,
               "a name for each preset");

const char *const *config_preset_names(void)
{
    return names;
}

raia_status config_preset(const char *name, struct model_config *out)
{
    char list[256] = "";
    for (size_t i = 0; names[i] != NULL; i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", names[i]);
        if (strcmp(names[i], name) != 0)
            continue;
        struct model_config config = presets[i].config;
        config.family = family_find(presets[i].family);
        config.qkv_bias = config.family->qkv_bias;
        config.qk_norm = config.family->qk_norm;
        config.pad = -1;
        config.eos_list[0] = config.eos;
        config.eos_count = 1;
        *out = config;
        return RAIA_OK;
    }
    return fail(RAIA_ENOTFOUND, "there is no preset '%.64s' (presets: %s)", name, list);
}
