/* fuzz_json: any bytes as JSON, whose members are asked for as every type. */
#include "base/base.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(const json_t *object, const char *key)
{
    const char *text;
    int64_t whole;
    double real;
    bool truth;
    int answers = (json_get_string(object, "fuzz", key, &text) == RAIA_OK) +
                  (json_get_bool(object, "fuzz", key, &truth) == RAIA_OK);
    if (json_get_i64(object, "fuzz", key, -5, 5, &whole) == RAIA_OK) {
        answers++;
        if (whole < -5 || whole > 5)
            abort();
    }
    if (json_get_f64(object, "fuzz", key, &real) == RAIA_OK && !isfinite(real))
        abort();
    if (answers > 1)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json = NULL;
    if (json_parse((const char *)data, size, 1 << 16, "fuzz", &json) != RAIA_OK) {
        if (raia_error()[0] == '\0')
            abort();
        return 0;
    }
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value) ask(json, key);
    ask(json, "no such key");
    json_decref(json);
    return 0;
}
