/* The table of commands, in the order in which `raia --help` lists them. */
#include "cli/cli.h"

const struct command cli_commands[] = {
    { "train", cmd_train, "train a Hugging Face model with FSDP", cmd_train_spec },
    { "model init", cmd_model_init, "make a model with random weights", cmd_model_init_spec },
    { "model info", cmd_model_info, "a model's parameters, bytes and FSDP units",
      cmd_model_info_spec },
    { "completion", cmd_completion, "tab completion for bash, zsh or fish", NULL },
    { .name = NULL },
};
