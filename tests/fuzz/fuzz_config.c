/* fuzz_config: any bytes as config.json. Whatever is accepted must describe a model and survive
 * being written. */
#include "model/model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_tree(const struct model_config *config)
{
    struct tree tree;
    if (config->layers > 64)
        return; /* only time */
    if (tree_build(config, &tree) != RAIA_OK)
        abort();
    if (tree.total < config->vocab * config->hidden || tree.module[0].end != tree.modules)
        abort();
    tree_release(&tree);
}

static void check_written(const struct model_config *config)
{
    json_t *json = NULL;
    struct model_config again;
    if (config_write(config, &json) != RAIA_OK || config_parse(json, "written", &again) != RAIA_OK)
        abort();
    if (again.hidden != config->hidden || again.head_dim != config->head_dim ||
        again.rope_theta != config->rope_theta || again.rope_type != config->rope_type ||
        again.eos_count != config->eos_count || again.tied != config->tied)
        abort();
    json_decref(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json = NULL;
    struct model_config config;
    if (json_parse((const char *)data, size, 1 << 20, "fuzz", &json) != RAIA_OK)
        return 0;
    if (config_parse(json, "fuzz", &config) == RAIA_OK) {
        check_tree(&config);
        check_written(&config);
    } else if (raia_error()[0] == '\0') {
        abort();
    }
    json_decref(json);
    return 0;
}
