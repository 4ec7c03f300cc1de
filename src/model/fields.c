/* fields: what config.json may say that raia has no knob for. A field is in use when it asks for
 * other mathematics than a plain decoder's; then it is refused by name. Fields that no row
 * names change nothing in transformers either, and are let through. */
#include "model/families.h"

#include <stdlib.h>
#include <string.h>

enum neutral {
    OFF,      /* null, false, 0, "", [] and {} */
    ONE,      /* null or 1 */
    ON,       /* null or true */
    SILU,     /* null or "silu" */
    CODE_LIST /* null or a list that holds the family's architecture */
};

struct rule {
    const char *key;
    enum neutral neutral;
    unsigned families;
    const char *supported;
};

static const struct rule rules[] = {
    { "architectures", CODE_LIST, FAMILY_ALL, "the causal language model" },
    { "hidden_act", SILU, FAMILY_ALL, "\"silu\"" },
    /* qwen2 has neither field: its biases are fixed, and transformers reads nothing here */
    { "attention_bias", OFF, FAMILY_QWEN3 | FAMILY_LLAMA, "false" },
    { "mlp_bias", OFF, FAMILY_ALL, "false" },
    { "attention_dropout", OFF, FAMILY_ALL, "0" },
    { "hidden_dropout", OFF, FAMILY_ALL, "0" },
    { "resid_pdrop", OFF, FAMILY_ALL, "0" },
    { "embd_pdrop", OFF, FAMILY_ALL, "0" },
    { "partial_rotary_factor", ONE, FAMILY_ALL, "1" },
    { "rope_interleaved", OFF, FAMILY_ALL, "false" },
    { "use_mrope", OFF, FAMILY_ALL, "false" },
    { "no_rope_layers", OFF, FAMILY_ALL, "null" },
    { "no_rope_layer_interval", OFF, FAMILY_ALL, "null" },
    { "use_qk_norm", OFF, FAMILY_QWEN2 | FAMILY_LLAMA, "false" },
    { "qk_norm", OFF, FAMILY_QWEN2 | FAMILY_LLAMA, "false" },
    { "qk_layernorm", OFF, FAMILY_ALL, "false" },
    { "clip_qkv", OFF, FAMILY_ALL, "null" },
    { "sandwich_norm", OFF, FAMILY_ALL, "false" },
    { "parallel_attn", OFF, FAMILY_ALL, "false" },
    { "final_logit_softcapping", OFF, FAMILY_ALL, "null" },
    { "attn_logit_softcapping", OFF, FAMILY_ALL, "null" },
    { "logit_scale", ONE, FAMILY_ALL, "1" },
    { "logits_scaling", ONE, FAMILY_ALL, "1" },
    { "attention_multiplier", OFF, FAMILY_ALL, "null" },
    { "embedding_multiplier", ONE, FAMILY_ALL, "1" },
    { "residual_multiplier", ONE, FAMILY_ALL, "1" },
    { "query_pre_attn_scalar", OFF, FAMILY_ALL, "null" },
    { "attention_chunk_size", OFF, FAMILY_ALL, "null" },
    { "is_causal", ON, FAMILY_ALL, "true" },
    { "use_bidirectional_attention", OFF, FAMILY_ALL, "false" },
    { "is_encoder_decoder", OFF, FAMILY_ALL, "false" },
    { "add_cross_attention", OFF, FAMILY_ALL, "false" },
    { "pruned_heads", OFF, FAMILY_ALL, "{}" },
    { "vision_config", OFF, FAMILY_ALL, "null" },
    { "text_config", OFF, FAMILY_ALL, "null" },
    { "num_experts", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "num_local_experts", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "n_routed_experts", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "n_shared_experts", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "num_experts_per_tok", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "moe_intermediate_size", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "shared_expert_intermediate_size", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "moe_num_experts", OFF, FAMILY_ALL, "0: no mixture of experts" },
    { "num_nextn_predict_layers", OFF, FAMILY_ALL, "0" },
    { "quantization_config", OFF, FAMILY_ALL, "null: weights in F32, BF16 or F16" },
    { "compression_config", OFF, FAMILY_ALL, "null: weights in F32, BF16 or F16" },
};

static bool is_off(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    case JSON_STRING:
        return json_string_length(value) == 0;
    case JSON_INTEGER:
    case JSON_REAL:
        return json_number_value(value) == 0;
    case JSON_TRUE:
        return false;
    default:
        return true;
    }
}

static bool holds_string(const json_t *list, const char *text)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item != NULL && strcmp(item, text) == 0)
            return true;
    }
    return false;
}

static bool is_neutral(const struct rule *rule, const json_t *value, const struct family *family)
{
    if (json_is_null(value))
        return true;
    switch (rule->neutral) {
    case OFF:
        return is_off(value);
    case ONE:
        return json_is_number(value) && json_number_value(value) == 1;
    case ON:
        return json_is_true(value);
    case SILU:
        return json_is_string(value) && strcmp(json_string_value(value), "silu") == 0;
    case CODE_LIST:
        return holds_string(value, family->architecture);
    }
    return false;
}

raia_status fields_refuse(const char *what, const char *key, const json_t *value,
                          const struct family *family, const char *supported)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    raia_status status =
        fail(RAIA_EUNSUPPORTED, "%s: \"%s\": %.100s is not supported for %s (supported: %s)", what,
             key, text != NULL ? text : "its value", family->name, supported);
    free(text);
    return status;
}

/* A window is in use when it is switched on (llama has no switch: when it is there) and reaches
 * a layer. */
static raia_status check_window(const json_t *json, const char *what, const struct family *family,
                                size_t layers)
{
    const json_t *window = json_object_get(json, "sliding_window");
    const json_t *use = json_object_get(json, "use_sliding_window");
    if (use != NULL && !json_is_null(use) && !json_is_boolean(use))
        return fail(RAIA_EFORMAT, "%s: \"use_sliding_window\" is not true or false", what);
    bool on = json_is_true(use) || (use == NULL && !family->writes_window_fields);
    if (window == NULL || json_is_null(window) || !on)
        return RAIA_OK;
    int64_t first = 0;
    bool found = false;
    RAIA_TRY(field_i64(json, what, "max_window_layers", 0, INT64_MAX, &first, &found));
    if (found && (uint64_t)first >= layers)
        return RAIA_OK;
    return fields_refuse(what, "sliding_window", window, family,
                         "null, or \"use_sliding_window\": false");
}

static raia_status check_layer_types(const json_t *json, const char *what,
                                     const struct family *family, size_t layers)
{
    const json_t *types = json_object_get(json, "layer_types");
    if (types == NULL || json_is_null(types))
        return RAIA_OK;
    if (!json_is_array(types))
        return fail(RAIA_EFORMAT, "%s: \"layer_types\" is not a list", what);
    for (size_t i = 0; i < json_array_size(types); i++) {
        const json_t *type = json_array_get(types, i);
        if (!json_is_string(type) || strcmp(json_string_value(type), "full_attention") != 0)
            return fields_refuse(what, "layer_types", type, family, "\"full_attention\"");
    }
    if (json_array_size(types) != layers)
        return fail(RAIA_EFORMAT, "%s: \"layer_types\" has %zu entries for %zu layers", what,
                    json_array_size(types), layers);
    return RAIA_OK;
}

raia_status fields_check(const json_t *json, const char *what, const struct family *family,
                         size_t layers)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const struct rule *rule = &rules[i];
        const json_t *value = json_object_get(json, rule->key);
        if (value == NULL || (rule->families & family->bit) == 0)
            continue;
        if (!is_neutral(rule, value, family))
            return fields_refuse(what, rule->key, value, family,
                                 rule->neutral == CODE_LIST ? family->architecture
                                                            : rule->supported);
    }
    RAIA_TRY(check_window(json, what, family, layers));
    return check_layer_types(json, what, family, layers);
}
