#include "base/base.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *type_arg(const struct opt *o)
{
    if (o->type == OPT_FLAG)
        return NULL;
    return o->type == OPT_CHOICE ? o->choices : o->arg != NULL ? o->arg : "VALUE";
}

static void print_default(const struct opt *o, FILE *out)
{
    switch (o->type) {
    case OPT_STRING:
    case OPT_CHOICE:
        if (*(const char **)o->value != NULL)
            fprintf(out, " (default %s)", *(const char **)o->value);
        break;
    case OPT_I64:
        fprintf(out, " (default %lld)", (long long)*(int64_t *)o->value);
        break;
    case OPT_F64:
        fprintf(out, " (default %g)", *(double *)o->value);
        break;
    default:
        break;
    }
}

void opt_print_help(const struct opt_spec *spec, FILE *out)
{
    fprintf(out, "usage: %s\n\n%s\n\noptions:\n", spec->usage, spec->summary);
    for (const struct opt *o = spec->opts; o->name != NULL; o++) {
        char left[64];
        const char *arg = type_arg(o);
        int at = o->letter ? snprintf(left, sizeof left, "  -%c, --%s", o->letter, o->name)
                           : snprintf(left, sizeof left, "      --%s", o->name);
        if (arg != NULL && at > 0 && (size_t)at < sizeof left)
            snprintf(left + at, sizeof left - (size_t)at, " %s", arg);
        if (strlen(left) < 34)
            fprintf(out, "%-34s%s", left, o->help);
        else
            fprintf(out, "%s\n%34s%s", left, "", o->help);
        print_default(o, out);
        fputc('\n', out);
    }
    fprintf(out, "  -h, --help                      show this text\n");
    if (spec->examples != NULL)
        fprintf(out, "\nexamples:\n%s", spec->examples);
}

/* '-' and '_' are the same in option names. */
static bool same_name(const char *a, const char *b, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((a[i] == '_' ? '-' : a[i]) != (b[i] == '_' ? '-' : b[i]) || a[i] == '\0')
            return false;
    return a[len] == '\0';
}

static const struct opt *find_long(const struct opt_spec *spec, const char *name, size_t len)
{
    for (const struct opt *o = spec->opts; o->name != NULL; o++)
        if (same_name(o->name, name, len))
            return o;
    return NULL;
}

static const struct opt *find_letter(const struct opt_spec *spec, char letter)
{
    for (const struct opt *o = spec->opts; o->name != NULL; o++)
        if (o->letter == letter)
            return o;
    return NULL;
}

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

static int edit_distance(const char *a, const char *b)
{
    int row[65];
    int n = (int)strnlen(b, 64);
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1] != '\0' && i <= 64; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

static raia_status unknown_option(const struct opt_spec *spec, const char *given)
{
    const char *name = given + strspn(given, "-"), *nearest = NULL;
    int best = 4;
    for (const struct opt *o = spec->opts; o->name != NULL; o++) {
        int d = edit_distance(name, o->name);
        if (d < best) {
            best = d;
            nearest = o->name;
        }
    }
    if (nearest != NULL)
        return fail(RAIA_EINVAL, "unknown option %s; did you mean --%s? (--help lists all)", given,
                    nearest);
    return fail(RAIA_EINVAL, "unknown option %s (--help lists all)", given);
}

static raia_status set_choice(const struct opt *o, const char *what, const char *text)
{
    size_t len = strlen(text);
    for (const char *p = o->choices; *p != '\0';) {
        size_t word = strcspn(p, "|");
        if (word == len && strncmp(p, text, len) == 0) {
            *(const char **)o->value = text;
            return RAIA_OK;
        }
        p += word + (p[word] == '|');
    }
    return fail(RAIA_EINVAL, "%s: '%s' is not one of %s", what, text, o->choices);
}

static raia_status set_value(const struct opt *o, const char *text)
{
    char what[64];
    snprintf(what, sizeof what, "--%s", o->name);
    switch (o->type) {
    case OPT_STRING:
        *(const char **)o->value = text;
        return RAIA_OK;
    case OPT_I64:
        return str_to_i64(text, what, o->min == o->max ? INT64_MIN : o->min,
                          o->min == o->max ? INT64_MAX : o->max, o->value);
    case OPT_F64:
        return str_to_f64(text, what, o->value);
    case OPT_SIZE:
        return str_to_size(text, what, INT64_MAX, o->value);
    case OPT_CHOICE:
        return set_choice(o, what, text);
    case OPT_LIST: {
        struct opt_list *list = o->value;
        if (list->count == (int)(sizeof list->items / sizeof list->items[0]))
            return fail(RAIA_EINVAL, "%s: given more than %d times", what, list->count);
        list->items[list->count++] = text;
        return RAIA_OK;
    }
    case OPT_FLAG:
        break;
    }
    return fail(RAIA_EBUG, "%s has no value", what);
}

struct cursor {
    int at, argc;
    char **argv;
};

static raia_status take_long(const struct opt_spec *spec, struct cursor *c, const char *given)
{
    const char *name = given + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    const struct opt *o = find_long(spec, name, len);
    bool no = o == NULL && len > 3 && str_starts(name, "no-");
    if (no)
        o = find_long(spec, name + 3, len - 3);
    if (o == NULL || (no && o->type != OPT_FLAG))
        return unknown_option(spec, given);
    if (o->type == OPT_FLAG) {
        if (value != NULL)
            return fail(RAIA_EINVAL, "--%s takes no value", o->name);
        *(bool *)o->value = !no;
        return RAIA_OK;
    }
    if (value == NULL && c->at >= c->argc)
        return fail(RAIA_EINVAL, "--%s needs a value (%s)", o->name, type_arg(o));
    return set_value(o, value != NULL ? value : c->argv[c->at++]);
}

static raia_status take_letters(const struct opt_spec *spec, struct cursor *c, const char *given)
{
    for (const char *p = given + 1; *p != '\0'; p++) {
        const struct opt *o = find_letter(spec, *p);
        if (o == NULL)
            return unknown_option(spec, given);
        if (o->type == OPT_FLAG) {
            *(bool *)o->value = true;
            continue;
        }
        if (p[1] != '\0')
            return set_value(o, p + 1);
        if (c->at >= c->argc)
            return fail(RAIA_EINVAL, "-%c needs a value (%s)", *p, type_arg(o));
        return set_value(o, c->argv[c->at++]);
    }
    return RAIA_OK;
}

static bool is_help(const struct opt_spec *spec, const char *given)
{
    return strcmp(given, "--help") == 0 ||
           (strcmp(given, "-h") == 0 && find_letter(spec, 'h') == NULL);
}

raia_status opt_parse(const struct opt_spec *spec, int argc, char **argv, bool stop_at_positional,
                      char **rest, int *nrest, bool *help)
{
    struct cursor c = { .at = 1, .argc = argc, .argv = argv };
    bool ended = false;
    *nrest = 0;
    *help = false;
    while (c.at < argc) {
        char *given = argv[c.at++];
        if (ended || given[0] != '-' || given[1] == '\0') {
            rest[(*nrest)++] = given;
            ended = ended || stop_at_positional;
        } else if (strcmp(given, "--") == 0) {
            ended = true;
        } else if (is_help(spec, given)) {
            opt_print_help(spec, stdout);
            *help = true;
            return RAIA_OK;
        } else if (given[1] == '-') {
            RAIA_TRY(take_long(spec, &c, given));
        } else {
            RAIA_TRY(take_letters(spec, &c, given));
        }
    }
    return RAIA_OK;
}
