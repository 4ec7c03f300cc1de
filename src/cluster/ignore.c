#include "cluster/ignore.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RULES = 10000, MAX_STEPS = 100000, MAX_IGNORE_FILE = 1 << 20 };

/* "[a-z]", "[!x]" at *PATTERN against C; moves *PATTERN past it. An unclosed bracket matches
 * itself. */
static bool class_matches(const char **pattern, char c)
{
    const char *p = *pattern + 1;
    bool negated = *p == '!' || *p == '^', hit = false;
    p += negated;
    const char *first = p;
    for (; *p != '\0' && (*p != ']' || p == first); p++) {
        if (*p == '\\' && p[1] != '\0')
            p++;
        char from = *p, to = from;
        if (p[1] == '-' && p[2] != ']' && p[2] != '\0') {
            p += 2;
            if (*p == '\\' && p[1] != '\0')
                p++;
            to = *p;
        }
        hit |= (unsigned char)c >= (unsigned char)from && (unsigned char)c <= (unsigned char)to;
    }
    if (*p == '\0') {
        bool same = c == '[';
        *pattern += 1;
        return same;
    }
    *pattern = p + 1;
    return c != '/' && hit != negated;
}

static bool glob(const char *p, const char *t, int *steps);

/* PATTERN after its stars: ANY lets them span slashes. */
static bool after_stars(const char *p, const char *t, bool any, int *steps)
{
    for (;; t++) {
        if (glob(p, t, steps))
            return true;
        if (*t == '\0' || (*t == '/' && !any) || *steps <= 0)
            return false;
    }
}

static bool glob_stars(const char *p, const char *t, const char *start, int *steps)
{
    const char *rest = p + strspn(p, "*");
    bool whole = rest - p >= 2 && (p == start || p[-1] == '/');
    if (whole && *rest == '/')
        return glob(rest + 1, t, steps) || after_stars(rest, t, true, steps);
    return after_stars(rest, t, whole && *rest == '\0', steps);
}

/* STEPS bounds the work of patterns made to explode. */
static bool glob(const char *p, const char *t, int *steps)
{
    const char *start = p;
    for (; *p != '\0'; t++) {
        if (--*steps <= 0)
            return false;
        if (*p == '*')
            return glob_stars(p, t, start, steps);
        if (*t == '\0')
            return false;
        if (*p == '[') {
            if (!class_matches(&p, *t))
                return false;
            continue;
        }
        if (*p == '\\' && p[1] != '\0')
            p++;
        else if (*p == '?' && *t != '/') {
            p++;
            continue;
        }
        if (*p++ != *t)
            return false;
    }
    return *t == '\0';
}

bool ignore_glob(const char *pattern, const char *text)
{
    int steps = MAX_STEPS;
    return glob(pattern, text, &steps);
}

static void trim(char *line)
{
    size_t n = strcspn(line, "\r\n");
    while (n > 0 && line[n - 1] == ' ' && (n < 2 || line[n - 2] != '\\'))
        n--;
    line[n] = '\0';
}

raia_status ignore_add(struct ignore *ignore, const char *base, const char *text)
{
    char *line = str_format("%s", text);
    if (line == NULL)
        return fail(RAIA_ENOMEM, "out of memory: an ignore pattern");
    trim(line);
    char *at = line;
    struct ignore_rule rule = { .negated = *at == '!' };
    at += rule.negated;
    size_t n = strlen(at);
    rule.folder_only = n > 0 && at[n - 1] == '/';
    if (rule.folder_only)
        at[--n] = '\0';
    rule.anchored = strchr(at, '/') != NULL;
    at += *at == '/';
    if (line[0] == '#' || *at == '\0') {
        free(line);
        return RAIA_OK;
    }
    rule.pattern = str_format("%s", at);
    rule.base = str_format("%s", base);
    free(line);
    struct ignore_rule *grown = ignore->rules;
    if (ignore->count == ignore->cap) {
        ignore->cap = ignore->cap > 0 ? 2 * ignore->cap : 16;
        grown = ignore->count < MAX_RULES ? reallocarray(grown, ignore->cap, sizeof rule) : NULL;
    }
    if (rule.pattern == NULL || rule.base == NULL || grown == NULL) {
        free(rule.pattern);
        free(rule.base);
        return fail(RAIA_ENOMEM, "out of memory, or more than %d ignore patterns", MAX_RULES);
    }
    ignore->rules = grown;
    ignore->rules[ignore->count++] = rule;
    return RAIA_OK;
}

raia_status ignore_add_file(struct ignore *ignore, const char *base, const char *file)
{
    if (!file_exists(file))
        return RAIA_OK;
    char *text;
    size_t len;
    RAIA_TRY(file_read(file, MAX_IGNORE_FILE, &text, &len));
    raia_status status = RAIA_OK;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line != NULL && status == RAIA_OK;
         line = strtok_r(NULL, "\n", &save))
        status = ignore_add(ignore, base, line);
    free(text);
    return status;
}

static bool rule_matches(const struct ignore_rule *rule, const char *path, bool folder)
{
    if ((rule->folder_only && !folder) || !str_starts(path, rule->base))
        return false;
    const char *below = path + strlen(rule->base);
    if (rule->anchored)
        return ignore_glob(rule->pattern, below);
    const char *name = strrchr(below, '/');
    return ignore_glob(rule->pattern, name != NULL ? name + 1 : below);
}

bool ignore_matches(const struct ignore *ignore, const char *path, bool folder)
{
    for (size_t i = ignore->count; i-- > 0;)
        if (rule_matches(&ignore->rules[i], path, folder))
            return !ignore->rules[i].negated;
    return false;
}

void ignore_truncate(struct ignore *ignore, size_t count)
{
    while (ignore->count > count) {
        struct ignore_rule *rule = &ignore->rules[--ignore->count];
        free(rule->pattern);
        free(rule->base);
    }
    if (count == 0) {
        free(ignore->rules);
        *ignore = (struct ignore){ 0 };
    }
}
