#include "cli/cli.h"

#include <stdlib.h>

int cli_end(raia_status status)
{
    if (status != RAIA_OK)
        fprintf(stderr, "raia: %s\n", raia_error());
    return raia_exit_code(status);
}

int cli_run_with_one(const struct opt_spec *spec, int argc, char **argv, const char *what,
                     raia_status (*run)(const char *operand))
{
    char **rest;
    int count;
    bool help;
    raia_status status = MEM_NEW(&rest, (size_t)argc);
    if (status != RAIA_OK)
        return cli_end(status);
    status = opt_parse(spec, argc, argv, false, rest, &count, &help);
    if (status == RAIA_OK && !help)
        status =
            count == 1 ? run(rest[0]) : fail(RAIA_EINVAL, "give %s; usage: %s", what, spec->usage);
    free(rest);
    return cli_end(status);
}
