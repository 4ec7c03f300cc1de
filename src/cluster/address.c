/* Where a machine keeps its cluster's files, and how clients find their head. */
#include "cluster/cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

raia_status cluster_state_dir(char **out)
{
    const char *given = env_get("RAIA_STATE", NULL), *runtime = env_get("XDG_RUNTIME_DIR", NULL);
    char *path = given != NULL     ? strdup(given)
                 : runtime != NULL ? path_join(runtime, "raia")
                                   : str_format("/tmp/raia-%u", (unsigned)getuid());
    struct stat st;
    if (path == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a path");
    raia_status status = dir_make(path, 0700);
    /* The folder decides which programs run here: nobody else may own it or write to it. */
    if (status == RAIA_OK && lstat(path, &st) < 0)
        status = fail(RAIA_EIO, "%s: %s", path, strerror(errno));
    if (status == RAIA_OK && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()))
        status = fail(RAIA_EREFUSED,
                      "%s, where the cluster's files would be, is no folder of this user (remove "
                      "it, or set RAIA_STATE to another)",
                      path);
    if (status == RAIA_OK && (st.st_mode & 022) != 0)
        status = fail(RAIA_EREFUSED, "others may write to %s (chmod 700 %s)", path, path);
    char *whole = status == RAIA_OK ? realpath(path, NULL) : NULL;
    free(path);
    if (status == RAIA_OK && whole == NULL)
        return fail(RAIA_EIO, "cannot resolve the state folder: %s", strerror(errno));
    *out = whole;
    return status;
}

/* "host", "host:port" or "http://host:port/" as "http://host:port". */
static raia_status normalize(const char *given, char **out)
{
    const char *scheme = "http";
    const char *rest = given;
    if (str_starts(given, "http://"))
        rest = given + strlen("http://");
    else if (str_starts(given, "https://")) {
        scheme = "https";
        rest = given + strlen("https://");
    } else if (strstr(given, "://") != NULL) {
        return fail(RAIA_EINVAL, "address '%s': only http:// and https:// are spoken", given);
    }
    size_t len = strcspn(rest, "/?#");
    if (len == 0 || rest[len] == '?' || rest[len] == '#' ||
        (rest[len] == '/' && rest[len + 1] != '\0'))
        return fail(RAIA_EINVAL, "address '%s' is not http://host:port", given);
    const char *bracket = memchr(rest, ']', len);
    bool port = memchr(bracket != NULL ? bracket : rest, ':',
                       bracket != NULL ? len - (size_t)(bracket - rest) : len) != NULL;
    *out = port || strcmp(scheme, "https") == 0
               ? str_format("%s://%.*s", scheme, (int)len, rest)
               : str_format("%s://%.*s:%d", scheme, (int)len, rest, CLUSTER_PORT);
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "out of memory: an address");
}

raia_status cluster_address(const char *given, char **out)
{
    struct daemons daemons = { 0 };
    char *state = NULL, local[300] = "";
    if (given == NULL)
        given = env_get("RAIA_ADDRESS", env_get("RAY_API_SERVER_ADDRESS", NULL));
    if (given != NULL)
        return normalize(given, out);
    if (cluster_state_dir(&state) == RAIA_OK && daemons_read(state, &daemons) == RAIA_OK)
        for (size_t i = 0; i < daemons.count; i++)
            if (strcmp(daemons.rows[i].name, "head") == 0)
                snprintf(local, sizeof local, "%s", daemons.rows[i].address);
    free(daemons.rows);
    free(state);
    return normalize(local[0] != '\0' ? local : "127.0.0.1", out);
}

static raia_status token_of_file(const char *path, char **out)
{
    size_t len;
    RAIA_TRY(file_read(path, 64 << 10, out, &len));
    (*out)[strcspn(*out, "\r\n")] = '\0';
    return RAIA_OK;
}

raia_status cluster_token(char **out)
{
    const char *token = env_get("RAIA_TOKEN", env_get("RAY_AUTH_TOKEN", NULL));
    const char *path = env_get("RAY_AUTH_TOKEN_PATH", NULL);
    *out = NULL;
    if (token == NULL && path != NULL)
        return fail_in(token_of_file(path, out), "RAY_AUTH_TOKEN_PATH");
    if (token != NULL && (*out = strdup(token)) == NULL)
        return fail(RAIA_ENOMEM, "out of memory: a token");
    if (*out != NULL && strpbrk(*out, "\r\n") != NULL) {
        free(*out);
        *out = NULL;
        return fail(RAIA_EINVAL, "the token has a line break");
    }
    return RAIA_OK;
}
