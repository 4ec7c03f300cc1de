#include "train/train_priv.h"

#include <stdlib.h>

static struct settings with_defaults(const raia_scaling *scaling, const raia_run *run)
{
    struct settings s = { .scaling = { .num_workers = RAIA_ALL } };
    if (scaling != NULL)
        s.scaling = *scaling;
    if (run != NULL)
        s.run = *run;
    if (s.run.name == NULL)
        s.run.name = "raia";
    if (s.run.fabric == NULL)
        s.run.fabric = "auto";
    if (s.run.require_fabric == NULL)
        s.run.require_fabric = env_get("RAIA_REQUIRE_FABRIC", NULL);
    if (!(s.run.timeout_s > 0))
        s.run.timeout_s = 300;
    return s;
}

int raia_fit(raia_train_function *train, void *arg, const raia_scaling *scaling,
             const raia_run *run)
{
    const struct settings settings = with_defaults(scaling, run);
    if (launch_is_rank()) {
        int code = raia_exit_code(rank_run(train, arg, &settings));
        fflush(NULL);
        exit(code); /* what the program does after raia_fit is the driver's to do, once */
    }
    raia_status status = driver_run(&settings);
    if (status != RAIA_OK)
        fprintf(stderr, "raia: %s\n", raia_error());
    return raia_exit_code(status);
}
