/* ignore: git's pattern language (gitignore(5)) for leaving files out of a package. */
#ifndef RAIA_CLUSTER_IGNORE_H
#define RAIA_CLUSTER_IGNORE_H

#include "base/base.h"

struct ignore_rule {
    char *pattern;
    char *base; /* folder that declares it, relative to the root, "" or ending in '/' */
    bool negated, folder_only, anchored;
};
struct ignore {
    struct ignore_rule *rules;
    size_t count, cap;
};

/* Adds one pattern line declared in BASE ("" or "sub/dir/"); blank lines and comments are skipped.
 */
raia_status ignore_add(struct ignore *ignore, const char *base, const char *text);
/* Adds the lines of FILE, which may be missing. */
raia_status ignore_add_file(struct ignore *ignore, const char *base, const char *file);
/* True when PATH (relative to the root) is left out: the last rule that matches decides. The caller
 * does not descend into folders that are left out. */
bool ignore_matches(const struct ignore *ignore, const char *path, bool folder);
/* Drops the rules beyond COUNT: those of a folder that has been left. */
void ignore_truncate(struct ignore *ignore, size_t count);

/* git's wildmatch with '/' never matched by '*' or '?', and "**" for any folders. */
bool ignore_glob(const char *pattern, const char *text);

#endif
