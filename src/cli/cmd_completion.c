/* raia completion: a script for the shell, made from the table of commands and their options. */
#include "cli/cli.h"

#include <string.h>

static const struct opt opts[] = { { .name = NULL } };
static const struct opt_spec spec = {
    .usage = "raia completion bash|zsh",
    .summary = "Prints a script that completes raia's commands, options and their words.",
    .opts = opts,
    .examples = "  eval \"$(raia completion bash)\"                      # in ~/.bashrc\n"
                "  eval \"$(raia completion zsh)\"                       # in ~/.zshrc\n",
};

/* First words, each once. */
static void print_first_words(void)
{
    for (const struct command *c = cli_commands; c->name != NULL; c++) {
        size_t len = strcspn(c->name, " ");
        bool seen = false;
        for (const struct command *d = cli_commands; d < c; d++)
            seen |= strncmp(d->name, c->name, len) == 0 &&
                    (d->name[len] == ' ' || d->name[len] == '\0');
        if (!seen)
            printf("%.*s ", (int)len, c->name);
    }
}

static void print_second_words(void)
{
    for (const struct command *c = cli_commands; c->name != NULL; c++) {
        const char *space = strchr(c->name, ' ');
        if (space != NULL)
            printf("        \"%.*s\") second+=\" %s\" ;;&\n", (int)(space - c->name), c->name,
                   space + 1);
    }
}

static void print_options(const struct command *c)
{
    printf("        \"%s\") words=\"--help", c->name);
    for (const struct opt *o = c->spec != NULL ? c->spec()->opts : opts; o->name != NULL; o++)
        printf(" --%s", o->name);
    printf("\" ;;\n");
}

static void print_choices(const struct command *c)
{
    for (const struct opt *o = c->spec != NULL ? c->spec()->opts : opts; o->name != NULL; o++) {
        if (o->type != OPT_CHOICE)
            continue;
        printf("        \"%s --%s\") choices=\"", c->name, o->name);
        for (const char *at = o->choices; *at != '\0'; at++)
            putchar(*at == '|' ? ' ' : *at);
        printf("\" ;;\n");
    }
}

static void print_script(void)
{
    printf("_raia() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
           "    local command=${COMP_WORDS[1]} first=\"");
    print_first_words();
    printf("--help --version\"\n    local second= words= choices=\n    COMPREPLY=()\n"
           "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
           "        COMPREPLY=($(compgen -W \"$first\" -- \"$cur\"))\n        return\n    fi\n"
           "    case $command in\n");
    print_second_words();
    printf("        *) ;;\n    esac\n"
           "    if [ -n \"$second\" ] && [ \"$COMP_CWORD\" -eq 2 ]; then\n"
           "        COMPREPLY=($(compgen -W \"$second\" -- \"$cur\"))\n        return\n    fi\n"
           "    [ -n \"$second\" ] && command=\"$command ${COMP_WORDS[2]}\"\n"
           "    case \"$command $prev\" in\n");
    for (const struct command *c = cli_commands; c->name != NULL; c++)
        print_choices(c);
    printf("        *) ;;\n    esac\n    if [ -n \"$choices\" ]; then\n"
           "        COMPREPLY=($(compgen -W \"$choices\" -- \"$cur\"))\n        return\n    fi\n"
           "    case $command in\n");
    for (const struct command *c = cli_commands; c->name != NULL; c++)
        print_options(c);
    printf("        *) ;;\n    esac\n    case $cur in\n"
           "        -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")) ;;\n"
           "        *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n    esac\n}\n"
           "complete -o filenames -F _raia raia\n");
}

static raia_status print_for(const char *shell)
{
    if (strcmp(shell, "zsh") == 0)
        printf("autoload -Uz compinit bashcompinit && compinit && bashcompinit\n");
    else if (strcmp(shell, "bash") != 0)
        return fail(RAIA_EINVAL, "no completion for \"%s\"; bash and zsh have one", shell);
    print_script();
    return RAIA_OK;
}

int cmd_completion(int argc, char **argv)
{
    return cli_run_with_one(&spec, argc, argv, "one shell", print_for);
}
