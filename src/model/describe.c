#include "model/families.h"

#include <stdlib.h>
#include <string.h>

static bool is_preset(const char *name)
{
    for (const char *const *p = config_preset_names(); *p != NULL; p++)
        if (strcmp(*p, name) == 0)
            return true;
    return false;
}

raia_status model_find(const char *name, struct model_config *config, char **dir)
{
    *dir = NULL;
    /* a folder wins, as it does in transformers */
    if (is_preset(name) && !dir_exists(name))
        return config_preset(name, config);
    raia_status status = model_resolve(name, dir);
    if (status == RAIA_OK)
        status = model_load_config(*dir, config);
    if (status != RAIA_OK) {
        free(*dir);
        *dir = NULL;
    }
    /* a word without a slash may have been meant as a preset: its error lists them */
    if (status == RAIA_ENOTFOUND && strchr(name, '/') == NULL) {
        char text[1024];
        snprintf(text, sizeof text, "%s", raia_error());
        return fail_in(config_preset(name, config), "%s", text);
    }
    return status;
}

raia_status raia_model_describe(const char *name, raia_model_info *out)
{
    struct model_config config;
    struct tree tree;
    char *dir;
    if (name == NULL || out == NULL)
        return fail(RAIA_EINVAL, "raia_model_describe needs a name and a place for the answer");
    RAIA_TRY(model_find(name, &config, &dir));
    free(dir);
    RAIA_TRY(tree_build(&config, &tree));
    *out = (raia_model_info){
        .hidden = config.hidden,
        .intermediate = config.intermediate,
        .layers = config.layers,
        .heads = config.heads,
        .kv_heads = config.kv_heads,
        .head_dim = config.head_dim,
        .vocab = config.vocab,
        .tied = config.tied,
        .parameters = tree.total,
    };
    snprintf(out->family, sizeof out->family, "%s", config.family->name);
    tree_release(&tree);
    return RAIA_OK;
}
