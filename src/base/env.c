#include "base/base.h"

#include <stdlib.h>
#include <strings.h>

const char *env_get(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : fallback;
}

raia_status env_i64(const char *name, int64_t fallback, int64_t min, int64_t max, int64_t *out)
{
    const char *value = env_get(name, NULL);
    if (value == NULL) {
        *out = fallback;
        return RAIA_OK;
    }
    return str_to_i64(value, name, min, max, out);
}

bool env_flag(const char *name, bool fallback)
{
    static const char *const yes[] = { "1", "true", "yes", "on" };
    static const char *const no[] = { "0", "false", "no", "off" };
    const char *value = env_get(name, NULL);
    if (value == NULL)
        return fallback;
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(value, yes[i]) == 0)
            return true;
        if (strcasecmp(value, no[i]) == 0)
            return false;
    }
    return fallback;
}
