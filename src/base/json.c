#include "base/base.h"

#include <stdlib.h>

/* jansson itself refuses nesting beyond 2048; ours is lower so that recursion over a value stays
 * small. */
enum { JSON_DEPTH = 64 };

static raia_status check_depth(const json_t *value, const char *what, int depth)
{
    if (depth > JSON_DEPTH)
        return fail(RAIA_EFORMAT, "%s: nested deeper than %d", what, JSON_DEPTH);
    if (json_is_object(value)) {
        const char *key;
        json_t *member;
        json_object_foreach((json_t *)value, key, member)
            RAIA_TRY(check_depth(member, what, depth + 1));
    } else if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            RAIA_TRY(check_depth(json_array_get(value, i), what, depth + 1));
    }
    return RAIA_OK;
}

raia_status json_parse(const char *text, size_t len, size_t max, const char *what, json_t **out)
{
    if (len > max)
        return fail(RAIA_EFORMAT, "%s: %zu bytes, more than the %zu that are allowed", what, len,
                    max);
    json_error_t error;
    json_t *value = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (value == NULL)
        return fail(RAIA_EFORMAT, "%s: not valid JSON at line %d, column %d: %s", what, error.line,
                    error.column, error.text);
    raia_status status = check_depth(value, what, 1);
    if (status != RAIA_OK) {
        json_decref(value);
        return status;
    }
    *out = value;
    return RAIA_OK;
}

raia_status json_read_file(const char *path, size_t max, json_t **out)
{
    char *text;
    size_t len;
    RAIA_TRY(file_read(path, max, &text, &len));
    raia_status status = json_parse(text, len, max, path, out);
    free(text);
    return status;
}

static raia_status member(const json_t *object, const char *what, const char *key, json_t **out)
{
    if (!json_is_object(object))
        return fail(RAIA_EFORMAT, "%s: not a JSON object", what);
    *out = json_object_get(object, key);
    if (*out == NULL)
        return fail(RAIA_ENOTFOUND, "%s: '%s' is missing", what, key);
    return RAIA_OK;
}

raia_status json_get_string(const json_t *object, const char *what, const char *key,
                            const char **out)
{
    json_t *value;
    RAIA_TRY(member(object, what, key, &value));
    if (!json_is_string(value))
        return fail(RAIA_EFORMAT, "%s: '%s' is not a string", what, key);
    *out = json_string_value(value);
    return RAIA_OK;
}

raia_status json_get_i64(const json_t *object, const char *what, const char *key, int64_t min,
                         int64_t max, int64_t *out)
{
    json_t *value;
    RAIA_TRY(member(object, what, key, &value));
    if (!json_is_integer(value))
        return fail(RAIA_EFORMAT, "%s: '%s' is not a whole number", what, key);
    int64_t number = json_integer_value(value);
    if (number < min || number > max)
        return fail(RAIA_EFORMAT, "%s: '%s' is %lld, not within %lld and %lld", what, key,
                    (long long)number, (long long)min, (long long)max);
    *out = number;
    return RAIA_OK;
}

raia_status json_get_f64(const json_t *object, const char *what, const char *key, double *out)
{
    json_t *value;
    RAIA_TRY(member(object, what, key, &value));
    if (!json_is_number(value))
        return fail(RAIA_EFORMAT, "%s: '%s' is not a number", what, key);
    *out = json_number_value(value);
    return RAIA_OK;
}

raia_status json_get_bool(const json_t *object, const char *what, const char *key, bool *out)
{
    json_t *value;
    RAIA_TRY(member(object, what, key, &value));
    if (!json_is_boolean(value))
        return fail(RAIA_EFORMAT, "%s: '%s' is not true or false", what, key);
    *out = json_is_true(value);
    return RAIA_OK;
}
