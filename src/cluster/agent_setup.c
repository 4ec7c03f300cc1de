/* A job's working folder: its packages, fetched from the head and unpacked. */
#include "cluster/agent_priv.h"
#include "cluster/client.h"
#include "cluster/package.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct package_limits limits = { LIMIT_UNPACKED, LIMIT_PACKAGE_FILES };

/* Package NAME of the head into a new folder NAME of DIR. */
static raia_status fetch(struct setup *setup, const char *name, const char *folder)
{
    const struct agent_config *config = &setup->agent->config;
    char *path = str_format("/api/raia/v1/packages/%s", name);
    char *zip = str_format("%s/%s.zip", setup->dir, folder);
    char *to = path_join(setup->dir, folder);
    raia_status status = path == NULL || zip == NULL || to == NULL
                             ? fail(RAIA_ENOMEM, "out of memory: a package's path")
                             : dir_make(to, 0700);
    if (status == RAIA_OK)
        status = client_download(config->address, config->token, path, zip, LIMIT_PACKAGE);
    if (status == RAIA_OK)
        status = package_unpack(zip, to, &limits, &setup->cancel);
    if (status != RAIA_OK)
        fail_in(status, "package %s", name);
    if (zip != NULL)
        unlink(zip);
    free(path);
    free(zip);
    free(to);
    return status;
}

static raia_status fetch_all(struct setup *setup)
{
    if (setup->package != NULL)
        RAIA_TRY(fetch(setup, setup->package, "work"));
    for (size_t i = 0; i < json_array_size(setup->modules); i++) {
        char folder[32];
        snprintf(folder, sizeof folder, "module-%zu", i);
        RAIA_TRY(fetch(setup, json_string_value(json_array_get(setup->modules, i)), folder));
    }
    return RAIA_OK;
}

void setup_run(struct setup *setup)
{
    raia_status status = dir_make(setup->dir, 0700);
    if (status == RAIA_OK)
        status = fetch_all(setup);
    if (status != RAIA_OK)
        setup->error = strdup(raia_error());
}

void setup_release(struct setup *setup)
{
    free(setup->dir);
    free(setup->package);
    json_decref(setup->modules);
    free(setup->error);
}
