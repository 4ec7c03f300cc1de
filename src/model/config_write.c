#include "model/families.h"

#include <stdlib.h>
#include <string.h>

/* A token id, or null for none. */
static json_t *token(int64_t id)
{
    return id < 0 ? json_null() : json_integer(id);
}

static json_t *eos_value(const struct model_config *config)
{
    if (config->eos_count <= 1)
        return token(config->eos);
    json_t *list = json_array();
    for (int i = 0; i < config->eos_count; i++)
        json_array_append_new(list, json_integer(config->eos_list[i]));
    return list;
}

static json_t *rope_value(const struct model_config *config)
{
    if (config->rope_type == ROPE_DEFAULT)
        return json_null();
    return json_pack("{s:f, s:f, s:f, s:I, s:s}", "factor", config->rope_factor, "high_freq_factor",
                     config->rope_high_freq, "low_freq_factor", config->rope_low_freq,
                     "original_max_position_embeddings", (json_int_t)config->rope_original_max,
                     "rope_type", "llama3");
}

/* Fields that only some families have in their files. */
static int set_family_fields(json_t *json, const struct model_config *config)
{
    int failed = 0;
    if (config->family->writes_bias_fields)
        failed |= json_object_set_new(json, "attention_bias", json_false());
    if (strcmp(config->family->name, "llama") == 0)
        failed |= json_object_set_new(json, "mlp_bias", json_false());
    if (config->family->writes_window_fields) {
        failed |= json_object_set_new(json, "use_sliding_window", json_false());
        failed |= json_object_set_new(json, "sliding_window", json_null());
        failed |= json_object_set_new(json, "max_window_layers",
                                      json_integer((json_int_t)config->layers));
    }
    /* an older transformers knows no head_dim in qwen2: write it only where it says something */
    if (config->family->bit != FAMILY_QWEN2 || config->head_dim * config->heads != config->hidden)
        failed |= json_object_set_new(json, "head_dim", json_integer((json_int_t)config->head_dim));
    return failed;
}

raia_status config_write(const struct model_config *config, json_t **out)
{
    const char *dtype = config_dtype_name(config->dtype);
    if (dtype == NULL)
        return fail(RAIA_EINVAL, "a model is not written as %s (f32, bf16 or f16)",
                    raia_dtype_name(config->dtype));
    json_t *json = json_pack(
        "{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:o, s:b, s:s, s:f, s:s, "
        "s:o, s:o, s:o, s:b}",
        "architectures", config->family->architecture, "model_type", config->family->name,
        "hidden_size", (json_int_t)config->hidden, "intermediate_size",
        (json_int_t)config->intermediate, "num_hidden_layers", (json_int_t)config->layers,
        "num_attention_heads", (json_int_t)config->heads, "num_key_value_heads",
        (json_int_t)config->kv_heads, "vocab_size", (json_int_t)config->vocab,
        "max_position_embeddings", (json_int_t)config->max_positions, "rms_norm_eps",
        config->rms_eps, "initializer_range", config->init_std, "rope_theta", config->rope_theta,
        "rope_scaling", rope_value(config), "tie_word_embeddings", (int)config->tied, "hidden_act",
        "silu", "attention_dropout", 0.0, "torch_dtype", dtype, "bos_token_id", token(config->bos),
        "eos_token_id", eos_value(config), "pad_token_id", token(config->pad), "use_cache", 1);
    if (json == NULL || set_family_fields(json, config) != 0) {
        json_decref(json);
        return fail(RAIA_ENOMEM, "no memory to write config.json");
    }
    *out = json;
    return RAIA_OK;
}

raia_status model_save_config(const struct model_config *config, const char *dir)
{
    json_t *json = NULL;
    RAIA_TRY(config_write(config, &json));
    char *text = json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    char *path = path_join(dir, "config.json");
    struct buf buf = { 0 };
    raia_status status = text == NULL || path == NULL ? fail(RAIA_ENOMEM, "no memory")
                                                      : buf_printf(&buf, "%s\n", text);
    if (status == RAIA_OK)
        status = file_write(path, buf.data, buf.len, 0644);
    buf_release(&buf);
    free(path);
    free(text);
    json_decref(json);
    return status;
}
