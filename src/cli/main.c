/* The raia program: finds the command in the table and runs it. */
#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>

static void print_help(FILE *out)
{
    fprintf(out, "raia trains large language models on many machines.\n\n"
                 "usage: raia COMMAND [options]\n\ncommands:\n");
    for (const struct command *c = cli_commands; c->name != NULL; c++)
        fprintf(out, "  %-14s %s\n", c->name, c->summary);
    fprintf(out, "\n  raia help COMMAND       options of a command, with examples\n"
                 "  raia --version          this program's version\n\n"
                 "Start here:\n"
                 "  raia model init --preset tiny /tmp/tiny\n"
                 "  raia train --model /tmp/tiny --steps 20 --workers 2\n");
}

/* Words of NAME that ARGV[1..] begins with; 0 when it is another command. */
static int match(const char *name, int argc, char **argv)
{
    int words = 0;
    for (const char *at = name; *at != '\0';) {
        size_t len = strcspn(at, " ");
        if (words + 1 >= argc || strlen(argv[words + 1]) != len ||
            strncmp(argv[words + 1], at, len) != 0)
            return 0;
        words++;
        at += len + (at[len] == ' ');
    }
    return words;
}

static bool is_family(const char *word)
{
    size_t len = strlen(word);
    for (const struct command *c = cli_commands; c->name != NULL; c++)
        if (strncmp(c->name, word, len) == 0 && c->name[len] == ' ')
            return true;
    return false;
}

static int show_family(const char *word, bool asked)
{
    size_t len = strlen(word);
    FILE *out = asked ? stdout : stderr;
    if (!asked)
        fprintf(out, "raia: %s needs a second word:\n", word);
    for (const struct command *c = cli_commands; c->name != NULL; c++)
        if (strncmp(c->name, word, len) == 0 && c->name[len] == ' ')
            fprintf(out, "  raia %-14s %s\n", c->name, c->summary);
    return asked ? 0 : raia_exit_code(RAIA_EINVAL);
}

/* Edits that turn A into B, counted up to the length of the rows. */
static size_t distance(const char *a, const char *b)
{
    enum { MOST = 32 };
    size_t row[MOST], n = strlen(b);
    if (n >= MOST || strlen(a) >= MOST)
        return MOST;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t corner = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t change = corner + (a[i - 1] != b[j - 1]);
            size_t shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            corner = row[j];
            row[j] = change < shift ? change : shift;
        }
    }
    return row[n];
}

static int unknown(int argc, char **argv)
{
    char typed[128];
    const char *nearest = NULL;
    size_t best = 3; /* a name that is further off is no typing error */
    bool two = argc > 2 && argv[2][0] != '-' && is_family(argv[1]);
    snprintf(typed, sizeof typed, "%s%s%s", argv[1], two ? " " : "", two ? argv[2] : "");
    for (const struct command *c = cli_commands; c->name != NULL; c++) {
        size_t d = distance(typed, c->name);
        if (d < best) {
            best = d;
            nearest = c->name;
        }
    }
    if (nearest != NULL)
        return cli_end(fail(RAIA_EINVAL, "there is no command \"%s\"; did you mean \"raia %s\"?",
                            typed, nearest));
    return cli_end(fail(RAIA_EINVAL, "there is no command \"%s\"; raia --help lists them", typed));
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* raia help COMMAND: what raia COMMAND --help says. */
static int help_of(int argc, char **argv)
{
    char option[] = "--help";
    for (const struct command *c = cli_commands; c->name != NULL; c++) {
        int words = match(c->name, argc, argv);
        if (words > 0 && words + 1 == argc)
            return c->run(2, (char *[]){ argv[words], option, NULL });
    }
    return is_family(argv[1]) && argc == 2 ? show_family(argv[1], true) : unknown(argc, argv);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return raia_exit_code(RAIA_EINVAL);
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        puts("raia " RAIA_VERSION);
        return 0;
    }
    if (asks_help(argv[1]) && argc == 2) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "help") == 0)
        return help_of(argc - 1, argv + 1);
    for (const struct command *c = cli_commands; c->name != NULL; c++) {
        int words = match(c->name, argc, argv);
        if (words > 0)
            return c->run(argc - words, argv + words);
    }
    if (is_family(argv[1]) && (argc == 2 || asks_help(argv[2])))
        return show_family(argv[1], argc > 2);
    return unknown(argc, argv);
}
