#include "model/families.h"

#include <math.h>
#include <string.h>

static const char *const rope_keys[] = {
    "rope_type",
    "type",
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "partial_rotary_factor",
    "original_max_position_embeddings",
};

static bool known(const char *key)
{
    for (size_t i = 0; i < sizeof rope_keys / sizeof rope_keys[0]; i++)
        if (strcmp(key, rope_keys[i]) == 0)
            return true;
    return false;
}

static raia_status check_keys(const json_t *rope, const char *where, const struct family *family)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)rope, key, value)
    {
        if (json_is_null(value))
            continue;
        if (!known(key))
            return fields_refuse(where, key, value, family, "rope types default and llama3");
        if (strcmp(key, "partial_rotary_factor") == 0 &&
            !(json_is_number(value) && json_number_value(value) == 1))
            return fields_refuse(where, key, value, family, "1");
    }
    return RAIA_OK;
}

static raia_status parse_type(const json_t *rope, const char *where, const struct family *family,
                              enum rope_type *out)
{
    const char *key = json_object_get(rope, "rope_type") != NULL ? "rope_type" : "type";
    const json_t *type = json_object_get(rope, key);
    if (type == NULL || json_is_null(type))
        return fail(RAIA_EFORMAT, "%s: the required field \"rope_type\" is missing", where);
    const char *text = json_is_string(type) ? json_string_value(type) : "";
    if (strcmp(text, "default") != 0 && strcmp(text, "llama3") != 0)
        return fields_refuse(where, key, type, family, "\"default\", \"llama3\"");
    *out = strcmp(text, "llama3") == 0 ? ROPE_LLAMA3 : ROPE_DEFAULT;
    return RAIA_OK;
}

#define ORIGINAL_MAX "original_max_position_embeddings"

static raia_status parse_llama3(const json_t *rope, const char *where, struct model_config *out)
{
    const struct {
        const char *key;
        double min, max;
        double *to;
    } fields[] = {
        { "factor", 1, 1e6, &out->rope_factor },
        { "low_freq_factor", 1e-6, 1e6, &out->rope_low_freq },
        { "high_freq_factor", 1e-6, 1e6, &out->rope_high_freq },
        { ORIGINAL_MAX, 1, 1e12, &out->rope_original_max },
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        bool found;
        RAIA_TRY(field_f64(rope, where, fields[i].key, fields[i].min, fields[i].max, fields[i].to,
                           &found));
        if (!found)
            return fail(RAIA_EFORMAT, "%s: the required field \"%s\" is missing", where,
                        fields[i].key);
    }
    if (out->rope_original_max != floor(out->rope_original_max))
        return fail(RAIA_EFORMAT, "%s: \"" ORIGINAL_MAX "\" is %g, not a whole number", where,
                    out->rope_original_max);
    if (out->rope_high_freq <= out->rope_low_freq)
        return fail(RAIA_EFORMAT, "%s: \"high_freq_factor\" %g is not above \"low_freq_factor\" %g",
                    where, out->rope_high_freq, out->rope_low_freq);
    return RAIA_OK;
}

/* One of the two objects; *THETA is set when the object holds it. */
static raia_status parse_object(const json_t *json, const char *what, const char *key,
                                struct model_config *out, double *theta, bool *has_theta)
{
    const json_t *rope = json_object_get(json, key);
    char where[512];
    snprintf(where, sizeof where, "%s: %s", what, key);
    if (!json_is_object(rope))
        return fail(RAIA_EFORMAT, "%s: not an object", where);
    RAIA_TRY(parse_type(rope, where, out->family, &out->rope_type));
    RAIA_TRY(check_keys(rope, where, out->family));
    RAIA_TRY(field_f64(rope, where, "rope_theta", 1, 1e15, theta, has_theta));
    return out->rope_type == ROPE_LLAMA3 ? parse_llama3(rope, where, out) : RAIA_OK;
}

static bool same_rope(const struct model_config *a, const struct model_config *b)
{
    return a->rope_type == b->rope_type && a->rope_factor == b->rope_factor &&
           a->rope_low_freq == b->rope_low_freq && a->rope_high_freq == b->rope_high_freq &&
           a->rope_original_max == b->rope_original_max;
}

raia_status rope_parse(const json_t *json, const char *what, struct model_config *out)
{
    static const char *const keys[] = { "rope_scaling", "rope_parameters" };
    double theta = 10000; /* transformers' default for all three families */
    bool has_theta, has_object = false;
    RAIA_TRY(field_f64(json, what, "rope_theta", 1, 1e15, &theta, &has_theta));
    for (size_t i = 0; i < 2; i++) {
        const json_t *rope = json_object_get(json, keys[i]);
        if (rope == NULL || json_is_null(rope))
            continue;
        struct model_config one = { .family = out->family };
        double inner = theta;
        bool has_inner;
        RAIA_TRY(parse_object(json, what, keys[i], &one, &inner, &has_inner));
        if (has_theta && inner != theta)
            return fail(RAIA_EFORMAT, "%s: \"rope_theta\" is %g and also %g in \"%s\": remove one",
                        what, theta, inner, keys[i]);
        if (has_object && !same_rope(out, &one))
            return fail(RAIA_EFORMAT,
                        "%s: \"rope_scaling\" and \"rope_parameters\" disagree: remove one", what);
        theta = inner;
        has_theta = has_theta || has_inner;
        has_object = true;
        out->rope_type = one.rope_type;
        out->rope_factor = one.rope_factor;
        out->rope_low_freq = one.rope_low_freq;
        out->rope_high_freq = one.rope_high_freq;
        out->rope_original_max = one.rope_original_max;
    }
    out->rope_theta = theta;
    return RAIA_OK;
}
