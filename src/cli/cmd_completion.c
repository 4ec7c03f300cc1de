/* raia completion: a script for the shell, made from the table of commands and their options. */
#include "cli/cli.h"

#include <string.h>

static const struct opt opts[] = { { .name = NULL } };
static const struct opt_spec spec = {
    .usage = "raia completion bash|zsh|fish",
    .summary = "Prints a script that completes raia's commands, options and their words.",
    .opts = opts,
    .examples = "  eval \"$(raia completion bash)\"                      # in ~/.bashrc\n"
                "  eval \"$(raia completion zsh)\"                       # in ~/.zshrc\n"
                "  raia completion fish | source                         # in config.fish\n",
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

static void print_bash(void)
{
    print_script();
}

static void print_zsh(void)
{
    printf("autoload -Uz compinit bashcompinit && compinit && bashcompinit\n");
    print_script();
}

/* ---- fish: one `complete` line for each word and option ---- */

static void print_fish_text(const char *text)
{
    putchar('\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('\'');
}

static void print_fish_word(const struct command *c)
{
    const char *space = strchr(c->name, ' ');
    if (space == NULL) {
        printf("complete -c raia -f -n __raia_at -a %s -d ", c->name);
    } else {
        int len = (int)(space - c->name);
        printf("complete -c raia -f -n __raia_at -a %.*s\n", len, c->name);
        printf("complete -c raia -f -n '__raia_at %.*s' -a %s -d ", len, c->name, space + 1);
    }
    print_fish_text(c->summary);
    putchar('\n');
}

static void print_fish_option(const struct command *c, const struct opt *o)
{
    printf("complete -c raia -n '__raia_on %s' -l %s", c->name, o->name);
    if (o->letter != 0)
        printf(" -s %c", o->letter);
    if (o->type == OPT_CHOICE) {
        printf(" -x -a '");
        for (const char *at = o->choices; *at != '\0'; at++)
            putchar(*at == '|' ? ' ' : *at);
        putchar('\'');
    } else if (o->type == OPT_STRING || o->type == OPT_LIST) {
        printf(" -r -F");
    } else if (o->type != OPT_FLAG) {
        printf(" -x");
    }
    printf(" -d ");
    print_fish_text(o->help);
    putchar('\n');
}

static void print_fish(void)
{
    /* Commands are the first words of a line: options come after them. */
    printf("function __raia_on\n"
           "    set -l words (commandline -opc)\n"
           "    set -l last (math 1 + (count $argv))\n"
           "    test (count $words) -ge $last\n"
           "    and test \"$words[2..$last]\" = \"$argv\"\nend\n"
           "function __raia_at\n"
           "    set -l words (commandline -opc)\n"
           "    test \"$words[2..-1]\" = \"$argv\"\nend\n"
           "complete -c raia -f -n __raia_at -l version -d 'print the version'\n"
           "complete -c raia -l help -s h -d 'show help'\n");
    for (const struct command *c = cli_commands; c->name != NULL; c++) {
        print_fish_word(c);
        for (const struct opt *o = c->spec != NULL ? c->spec()->opts : opts; o->name != NULL; o++)
            print_fish_option(c, o);
    }
    printf("complete -c raia -f -n '__raia_on completion' -a 'bash zsh fish'\n");
}

static const struct shell {
    const char *name;
    void (*print)(void);
} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

static raia_status print_for(const char *name)
{
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, name) == 0) {
            shells[i].print();
            return RAIA_OK;
        }
    return fail(RAIA_EINVAL, "no completion for \"%s\"; bash, zsh and fish have one", name);
}

int cmd_completion(int argc, char **argv)
{
    return cli_run_with_one(&spec, argc, argv, "one shell", print_for);
}
