/* fuzz_evidence: any JSON as what the ranks say of the wire: {"before":[…],"after":[…],"require":
 * NAME}. There is a verdict or a failure with a text; a verdict can be shown, and what was required
 * never passes on evidence of another provider. */
#include "fabric/fabric.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_verdict(const json_t *verdict, const char *require)
{
    struct buf table = { 0 };
    const char *status = json_string_value(json_object_get(verdict, "status"));
    const char *fabric = json_string_value(json_object_get(verdict, "fabric"));
    if (status == NULL || fabric == NULL || json_object_get(verdict, "pairs") == NULL)
        abort();
    if (strcmp(status, "pass") != 0 && strcmp(status, "fail") != 0 &&
        strcmp(status, "inconclusive") != 0)
        abort();
    if (require != NULL && strcmp(require, "pigeon") == 0 && strcmp(fabric, "tcp") == 0 &&
        strcmp(status, "pass") == 0)
        abort();
    if (evidence_table(verdict, &table) != RAIA_OK)
        abort();
    buf_release(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json = NULL, *verdict = NULL;
    if (json_parse((const char *)data, size, 1 << 16, "fuzz", &json) != RAIA_OK)
        return 0;
    const json_t *before = json_object_get(json, "before"), *after = json_object_get(json, "after");
    const char *require = json_string_value(json_object_get(json, "require"));
    if (json_is_array(before) && json_is_array(after)) {
        if (evidence_verdict(before, after, require, &verdict) == RAIA_OK)
            check_verdict(verdict, require);
        else if (raia_error()[0] == '\0')
            abort();
    }
    json_decref(verdict);
    json_decref(json);
    return 0;
}
