/* config: config.json into a struct. Both spellings are read: that of transformers up to 4
 * (rope_theta, rope_scaling, torch_dtype) and that of 5 (rope_parameters, dtype, layer_types). */
#include "model/families.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MAX_BYTES = 4 << 20 };

/* Bounds far beyond any model, which keep every product of two sizes within 64 bits. */
enum { MAX_WIDTH = 1 << 20, MAX_LAYERS = 4096, MAX_VOCAB = 1 << 26, MAX_HEAD_DIM = 4096 };

static raia_status missing(const char *what, const char *key)
{
    return fail(RAIA_EFORMAT, "%s: the required field \"%s\" is missing", what, key);
}

static const json_t *present(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    return json_is_null(value) ? NULL : value;
}

static raia_status wrong(const char *what, const char *key, const json_t *value, const char *wanted)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);
    raia_status status = fail(RAIA_EFORMAT, "%s: \"%s\" is %.100s, not %s", what, key,
                              text != NULL ? text : "something else", wanted);
    free(text);
    return status;
}

raia_status field_i64(const json_t *json, const char *what, const char *key, int64_t min,
                      int64_t max, int64_t *out, bool *found)
{
    const json_t *value = present(json, key);
    *found = value != NULL;
    if (value == NULL)
        return RAIA_OK;
    if (!json_is_integer(value))
        return wrong(what, key, value, "an integer");
    int64_t got = json_integer_value(value);
    if (got < min || got > max)
        return fail(RAIA_EFORMAT, "%s: \"%s\" is %lld, outside %lld..%lld", what, key,
                    (long long)got, (long long)min, (long long)max);
    *out = got;
    return RAIA_OK;
}

raia_status field_f64(const json_t *json, const char *what, const char *key, double min, double max,
                      double *out, bool *found)
{
    const json_t *value = present(json, key);
    *found = value != NULL;
    if (value == NULL)
        return RAIA_OK;
    if (!json_is_number(value))
        return wrong(what, key, value, "a number");
    double got = json_number_value(value);
    if (!(got >= min && got <= max))
        return fail(RAIA_EFORMAT, "%s: \"%s\" is %g, outside %g..%g", what, key, got, min, max);
    *out = got;
    return RAIA_OK;
}

static raia_status field_bool(const json_t *json, const char *what, const char *key, bool *out)
{
    const json_t *value = present(json, key);
    if (value == NULL)
        return RAIA_OK;
    if (!json_is_boolean(value))
        return wrong(what, key, value, "true or false");
    *out = json_is_true(value);
    return RAIA_OK;
}

/* ---- sizes ---- */

static const struct size_field {
    const char *key;
    size_t offset;
    int64_t max;
    bool required;
} size_fields[] = {
    { "hidden_size", offsetof(struct model_config, hidden), MAX_WIDTH, true },
    { "intermediate_size", offsetof(struct model_config, intermediate), MAX_WIDTH, true },
    { "num_hidden_layers", offsetof(struct model_config, layers), MAX_LAYERS, true },
    { "num_attention_heads", offsetof(struct model_config, heads), MAX_WIDTH, true },
    { "num_key_value_heads", offsetof(struct model_config, kv_heads), MAX_WIDTH, false },
    { "head_dim", offsetof(struct model_config, head_dim), MAX_HEAD_DIM, false },
    { "vocab_size", offsetof(struct model_config, vocab), MAX_VOCAB, true },
    { "max_position_embeddings", offsetof(struct model_config, max_positions), INT32_MAX, false },
};

static raia_status parse_sizes(const json_t *json, const char *what, struct model_config *out)
{
    for (size_t i = 0; i < sizeof size_fields / sizeof size_fields[0]; i++) {
        const struct size_field *field = &size_fields[i];
        int64_t value = 0;
        bool found;
        RAIA_TRY(field_i64(json, what, field->key, 1, field->max, &value, &found));
        if (!found && field->required)
            return missing(what, field->key);
        *(size_t *)((char *)out + field->offset) = (size_t)value;
    }
    return RAIA_OK;
}

/* What the file leaves out, as transformers fills it in: an absent head_dim is the family's,
 * a null one hidden/heads. */
static raia_status default_sizes(const json_t *json, const char *what, struct model_config *out)
{
    if (out->kv_heads == 0) {
        if (out->family->kv_heads_required && json_object_get(json, "num_key_value_heads") == NULL)
            return missing(what, "num_key_value_heads");
        out->kv_heads = out->heads;
    }
    if (out->max_positions == 0)
        out->max_positions = out->family->max_positions;
    if (out->head_dim == 0 && json_object_get(json, "head_dim") == NULL)
        out->head_dim = out->family->head_dim;
    if (out->head_dim == 0) {
        if (out->hidden % out->heads != 0)
            return fail(RAIA_EFORMAT,
                        "%s: \"hidden_size\" %zu is not a multiple of \"num_attention_heads\" "
                        "%zu and \"head_dim\" is not given",
                        what, out->hidden, out->heads);
        out->head_dim = out->hidden / out->heads;
    }
    return RAIA_OK;
}

static raia_status check_heads(const char *what, const struct model_config *config)
{
    if (config->heads % config->kv_heads != 0)
        return fail(RAIA_EFORMAT,
                    "%s: \"num_attention_heads\" %zu is not a multiple of \"num_key_value_heads\" "
                    "%zu",
                    what, config->heads, config->kv_heads);
    if (config->head_dim % 2 != 0)
        return fail(RAIA_EFORMAT, "%s: \"head_dim\" %zu is odd: rotary embedding turns pairs", what,
                    config->head_dim);
    if (config->heads * config->head_dim > MAX_WIDTH)
        return fail(RAIA_EFORMAT, "%s: %zu heads of %zu are wider than %d", what, config->heads,
                    config->head_dim, MAX_WIDTH);
    return RAIA_OK;
}

/* ---- the rest ---- */

static raia_status parse_eos(const json_t *json, const char *what, struct model_config *out)
{
    enum { EOS_MAX = sizeof out->eos_list / sizeof out->eos_list[0] };
    const json_t *value = present(json, "eos_token_id");
    if (!json_is_array(value)) {
        bool found;
        RAIA_TRY(field_i64(json, what, "eos_token_id", 0, UINT32_MAX, &out->eos, &found));
        out->eos_list[0] = out->eos;
        out->eos_count = found ? 1 : 0;
        return RAIA_OK;
    }
    if (json_array_size(value) > EOS_MAX)
        return fail(RAIA_EUNSUPPORTED, "%s: \"eos_token_id\" lists %zu tokens (supported: %d)",
                    what, json_array_size(value), EOS_MAX);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) > UINT32_MAX)
            return wrong(what, "eos_token_id", value, "an integer or a list of integers");
        out->eos_list[out->eos_count++] = json_integer_value(item);
    }
    out->eos = out->eos_count > 0 ? out->eos_list[0] : -1;
    return RAIA_OK;
}

static raia_status parse_special_tokens(const json_t *json, const char *what,
                                        struct model_config *out)
{
    bool found;
    out->bos = out->eos = out->pad = -1;
    RAIA_TRY(field_i64(json, what, "bos_token_id", 0, UINT32_MAX, &out->bos, &found));
    /* old llama files say -1 for none */
    RAIA_TRY(field_i64(json, what, "pad_token_id", -1, UINT32_MAX, &out->pad, &found));
    return parse_eos(json, what, out);
}

static const struct dtype_name {
    const char *name;
    raia_dtype dtype;
} dtype_names[] = { { "float32", RAIA_F32 }, { "bfloat16", RAIA_BF16 }, { "float16", RAIA_F16 } };

const char *config_dtype_name(raia_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (dtype_names[i].dtype == dtype)
            return dtype_names[i].name;
    return NULL;
}

static raia_status parse_dtype_key(const json_t *json, const char *what, const char *key,
                                   const struct family *family, int *out)
{
    const json_t *value = present(json, key);
    if (value == NULL)
        return RAIA_OK;
    if (!json_is_string(value))
        return wrong(what, key, value, "a string");
    const char *text = json_string_value(value);
    if (str_starts(text, "torch."))
        text += strlen("torch.");
    for (size_t i = 0; i < sizeof dtype_names / sizeof dtype_names[0]; i++)
        if (strcmp(dtype_names[i].name, text) == 0) {
            *out = (int)dtype_names[i].dtype;
            return RAIA_OK;
        }
    return fields_refuse(what, key, value, family, "float32, bfloat16, float16");
}

static raia_status parse_dtype(const json_t *json, const char *what, struct model_config *out)
{
    int older = -1, newer = -1;
    RAIA_TRY(parse_dtype_key(json, what, "torch_dtype", out->family, &older));
    RAIA_TRY(parse_dtype_key(json, what, "dtype", out->family, &newer));
    if (older >= 0 && newer >= 0 && older != newer)
        return fail(RAIA_EFORMAT, "%s: \"torch_dtype\" and \"dtype\" disagree: remove one", what);
    int dtype = newer >= 0 ? newer : older;
    out->dtype = dtype >= 0 ? (raia_dtype)dtype : RAIA_F32;
    return RAIA_OK;
}

static raia_status parse_family(const json_t *json, const char *what, const struct family **out)
{
    const json_t *type = present(json, "model_type");
    if (type == NULL)
        return missing(what, "model_type");
    if (!json_is_string(type))
        return wrong(what, "model_type", type, "a string");
    *out = family_find(json_string_value(type));
    if (*out != NULL)
        return RAIA_OK;
    char names[128] = "";
    for (const struct family *f = families; f->name != NULL; f++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", f->name);
    }
    return fail(RAIA_EUNSUPPORTED, "%s: \"model_type\": \"%.64s\" is not supported (supported: %s)",
                what, json_string_value(type), names);
}

raia_status config_parse(const json_t *json, const char *what, struct model_config *out)
{
    struct model_config config = { .rms_eps = 1e-6, .init_std = 0.02 };
    bool found;
    if (!json_is_object(json))
        return fail(RAIA_EFORMAT, "%s: not a JSON object", what);
    RAIA_TRY(parse_family(json, what, &config.family));
    config.qkv_bias = config.family->qkv_bias;
    config.qk_norm = config.family->qk_norm;
    RAIA_TRY(parse_sizes(json, what, &config));
    RAIA_TRY(fields_check(json, what, config.family, config.layers));
    RAIA_TRY(default_sizes(json, what, &config));
    RAIA_TRY(check_heads(what, &config));
    RAIA_TRY(rope_parse(json, what, &config));
    RAIA_TRY(field_f64(json, what, "rms_norm_eps", 0, 1, &config.rms_eps, &found));
    RAIA_TRY(field_f64(json, what, "initializer_range", 0, 100, &config.init_std, &found));
    RAIA_TRY(field_bool(json, what, "tie_word_embeddings", &config.tied));
    RAIA_TRY(parse_special_tokens(json, what, &config));
    RAIA_TRY(parse_dtype(json, what, &config));
    *out = config;
    return RAIA_OK;
}

raia_status model_load_config(const char *dir, struct model_config *out)
{
    char *path = path_join(dir, "config.json");
    if (path == NULL)
        return fail(RAIA_ENOMEM, "no memory for the path of config.json");
    json_t *json = NULL;
    raia_status status = json_read_file(path, CONFIG_MAX_BYTES, &json);
    if (status == RAIA_OK)
        status = config_parse(json, path, out);
    json_decref(json);
    free(path);
    return status;
}

const char *config_family_name(const struct model_config *config)
{
    return config->family->name;
}
