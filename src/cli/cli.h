/* cli: the raia program. One file a command (cmd_NAME.c), one table of commands (commands.c). To
 * add a command: write the file, declare it here, add its row; --help, completion and the tests'
 * list follow from the row. */
#ifndef RAIA_CLI_H
#define RAIA_CLI_H

#include "base/base.h"

struct command {
    const char *name; /* "train", or "job submit" for the second word of a family */
    int (*run)(int argc,
               char **argv); /* argv[0] is the command's last word; returns the exit code */
    const char *summary;     /* one line for `raia --help` */
    const struct opt_spec *(*spec)(void); /* its options, for completion; may be NULL */
};
extern const struct command cli_commands[]; /* ends with name NULL */

/* Prints "raia: TEXT" for a failure (nothing for RAIA_OK) and returns its exit code. */
int cli_end(raia_status status);

/* A command of one operand: parses ARGV by SPEC and calls RUN with the operand, unless --help was
 * asked for. WHAT names the operand in the error when it is missing ("one model"). Returns the exit
 * code. */
int cli_run_with_one(const struct opt_spec *spec, int argc, char **argv, const char *what,
                     raia_status (*run)(const char *operand));

int cmd_train(int argc, char **argv);
const struct opt_spec *cmd_train_spec(void);
int cmd_model_init(int argc, char **argv);
const struct opt_spec *cmd_model_init_spec(void);
int cmd_model_info(int argc, char **argv);
const struct opt_spec *cmd_model_info_spec(void);
int cmd_completion(int argc, char **argv);

#endif
