/* hub: finds a model in the local Hugging Face cache, whose layout is
 *   CACHE/models--ORG--NAME/refs/REVISION           a commit
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/FILE   links into blobs/
 * Nothing is fetched. A snapshot that lacks a file is refused here, in words, before a job starts
 * on it. */
#include "model/model.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { ID_MAX = 96, REVISION_MAX = 200, INDEX_MAX = 100000000 };

struct hub_id {
    char name[ID_MAX + 1];    /* "ORG/NAME" or "NAME" */
    char folder[ID_MAX + 16]; /* "models--ORG--NAME" */
    char revision[REVISION_MAX + 1];
};

/* ---- names ---- */

static bool is_hub_name(const char *name)
{
    int slashes = 0;
    size_t len = strlen(name);
    if (len == 0 || len > ID_MAX || strstr(name, "--") != NULL || strstr(name, "..") != NULL)
        return false;
    for (size_t i = 0; i < len; i++) {
        bool edge = i == 0 || i == len - 1 || name[i - 1] == '/' || name[i + 1] == '/';
        if (name[i] == '/')
            slashes++;
        if (edge ? !isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '/'
                 : !isalnum((unsigned char)name[i]) && strchr("._-/", name[i]) == NULL)
            return false;
    }
    return slashes <= 1 && name[0] != '/' && name[len - 1] != '/';
}

/* A revision may hold slashes (refs/pr/1), but no way out of its folder. */
static bool is_revision(const char *revision)
{
    char copy[REVISION_MAX + 1], *save = NULL;
    if (strlen(revision) > REVISION_MAX || revision[0] == '\0' || revision[0] == '/')
        return false;
    snprintf(copy, sizeof copy, "%s", revision);
    for (char *part = strtok_r(copy, "/", &save); part != NULL; part = strtok_r(NULL, "/", &save))
        if (!path_is_component(part))
            return false;
    return true;
}

static raia_status parse_id(const char *text, struct hub_id *out)
{
    const char *at = strchr(text, '@');
    size_t len = at != NULL ? (size_t)(at - text) : strlen(text);
    const char *revision = at != NULL ? at + 1 : "main";
    if (len <= ID_MAX)
        snprintf(out->name, sizeof out->name, "%.*s", (int)len, text);
    if (len > ID_MAX || !is_hub_name(out->name) || !is_revision(revision))
        return fail(RAIA_ENOTFOUND,
                    "\"%.200s\" is neither a folder nor a name on the Hugging Face hub "
                    "(ORG/NAME or ORG/NAME@REVISION)",
                    text);
    snprintf(out->revision, sizeof out->revision, "%s", revision);
    const char *slash = strchr(out->name, '/');
    if (slash == NULL)
        snprintf(out->folder, sizeof out->folder, "models--%s", out->name);
    else
        snprintf(out->folder, sizeof out->folder, "models--%.*s--%s", (int)(slash - out->name),
                 out->name, slash + 1);
    return RAIA_OK;
}

/* ---- the cache's place ---- */

/* VALUE/TAIL with a leading ~ as the home folder; NULL when out of memory. */
static char *expand(const char *value, const char *tail)
{
    if (value[0] == '~' && (value[1] == '/' || value[1] == '\0')) {
        char *home = path_join(env_get("HOME", "/"), value + 1);
        char *path = home != NULL ? path_join(home, tail) : NULL;
        free(home);
        return path;
    }
    return path_join(value, tail);
}

static raia_status cache_path(char **out)
{
    static const struct {
        const char *variable, *tail;
    } places[] = {
        { "HF_HUB_CACHE", "" },
        { "HUGGINGFACE_HUB_CACHE", "" },
        { "HF_HOME", "hub" },
        { "XDG_CACHE_HOME", "huggingface/hub" },
        { "HOME", ".cache/huggingface/hub" },
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const char *value = env_get(places[i].variable, NULL);
        if (value == NULL)
            continue;
        *out = expand(value, places[i].tail);
        return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "no memory for a path");
    }
    return fail(RAIA_ENOTFOUND,
                "cannot tell where the Hugging Face cache is: set HF_HOME or HF_HUB_CACHE");
}

/* ---- a snapshot ---- */

static bool is_commit(const char *text)
{
    return strlen(text) == 40 && strspn(text, "0123456789abcdef") == 40;
}

/* refs/REVISION's commit into OUT, which the caller frees. */
static raia_status read_ref(const char *repo, const struct hub_id *id, char **out)
{
    size_t len;
    char *path = str_format("%s/refs/%s", repo, id->revision);
    if (path == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    char *commit = NULL;
    raia_status status = file_read(path, 1024, &commit, &len);
    if (status == RAIA_ENOTFOUND)
        status = fail(status,
                      "the Hugging Face cache holds \"%s\" but not its revision \"%s\" (no %s); "
                      "get it with: hf download %s --revision %s",
                      id->name, id->revision, path, id->name, id->revision);
    if (status == RAIA_OK) {
        while (len > 0 && isspace((unsigned char)commit[len - 1]))
            commit[--len] = '\0';
        if (!path_is_component(commit))
            status = fail(RAIA_EFORMAT, "%s does not hold a commit", path);
    }
    free(path);
    if (status != RAIA_OK) {
        free(commit);
        return status;
    }
    *out = commit;
    return RAIA_OK;
}

static raia_status snapshot_path(const char *repo, const struct hub_id *id, char **out)
{
    char *commit = NULL;
    if (!is_commit(id->revision))
        RAIA_TRY(read_ref(repo, id, &commit));
    *out = str_format("%s/snapshots/%s", repo, commit != NULL ? commit : id->revision);
    free(commit);
    return *out != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "no memory for a path");
}

static raia_status incomplete(const char *dir, const char *file, const struct hub_id *id)
{
    return fail(RAIA_ENOTFOUND,
                "\"%s\" is incomplete in the Hugging Face cache: %s/%s is missing; finish it "
                "with: hf download %s --revision %s",
                id->name, dir, file, id->name, id->revision);
}

static raia_status check_file(const char *dir, const char *file, const struct hub_id *id)
{
    char *path = path_join(dir, file);
    if (path == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    bool there = file_exists(path); /* follows the link: a lost blob is a lost file */
    free(path);
    return there ? RAIA_OK : incomplete(dir, file, id);
}

static raia_status check_shards(const char *dir, const char *index, const struct hub_id *id)
{
    json_t *json = NULL, *value;
    const char *tensor, *last = "";
    RAIA_TRY(json_read_file(index, INDEX_MAX, &json));
    raia_status status = RAIA_OK;
    json_object_foreach(json_object_get(json, "weight_map"), tensor, value)
    {
        const char *file = json_string_value(value);
        if (file == NULL || !path_is_component(file))
            status = fail(RAIA_EFORMAT, "%s: weight_map: tensor \"%.100s\" has no file's name",
                          index, tensor);
        else if (strcmp(file, last) != 0)
            status = check_file(dir, file, id);
        if (status != RAIA_OK)
            break;
        last = file;
    }
    json_decref(json);
    return status;
}

static raia_status check_snapshot(const char *dir, const struct hub_id *id)
{
    if (!dir_exists(dir))
        return incomplete(dir, "config.json", id);
    RAIA_TRY(check_file(dir, "config.json", id));
    char *index = path_join(dir, "model.safetensors.index.json");
    if (index == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    raia_status status = file_exists(index) ? check_shards(dir, index, id) : RAIA_OK;
    free(index);
    return status;
}

static raia_status resolve_in(const char *cache, const struct hub_id *id, char **dir)
{
    char *repo = path_join(cache, id->folder);
    if (repo == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    raia_status status;
    if (!dir_exists(repo))
        status = fail(RAIA_ENOTFOUND,
                      "\"%s\" is neither a folder nor in the Hugging Face cache (looked for %s; "
                      "HF_HOME and HF_HUB_CACHE choose another); get it with: hf download %s",
                      id->name, repo, id->name);
    else
        status = snapshot_path(repo, id, dir);
    free(repo);
    if (status != RAIA_OK)
        return status;
    status = check_snapshot(*dir, id);
    if (status != RAIA_OK) {
        free(*dir);
        *dir = NULL;
    }
    return status;
}

raia_status model_resolve(const char *name, char **dir)
{
    *dir = NULL;
    if (dir_exists(name)) {
        *dir = strdup(name);
        return *dir != NULL ? RAIA_OK : fail(RAIA_ENOMEM, "no memory for a path");
    }
    if (file_exists(name))
        return fail(RAIA_EINVAL, "%s is a file: a model is a folder with config.json", name);
    if (name[0] == '/' || name[0] == '.' || name[0] == '~')
        return fail(RAIA_ENOTFOUND, "there is no folder %s", name);
    struct hub_id id;
    char *cache = NULL;
    RAIA_TRY(parse_id(name, &id));
    RAIA_TRY(cache_path(&cache));
    raia_status status = resolve_in(cache, &id, dir);
    free(cache);
    return status;
}
