/* package: working folders as zip files. The client's side packs a folder under the name that Ray's
 * client would give it; a node's side unpacks what anyone may have sent, so that nothing leaves the
 * folder, no link is made and every count is bounded. */
#ifndef RAIA_CLUSTER_PACKAGE_H
#define RAIA_CLUSTER_PACKAGE_H

#include "base/base.h"

#include <stdatomic.h>

/* True for a name that a head stores: letters, digits, "._+-", not hidden, ending in .zip or .whl.
 */
bool package_name_ok(const char *name);
/* The name in "gcs://NAME"; RAIA_EINVAL says what is wrong with URI. Borrowed from URI. */
raia_status package_name_of(const char *uri, const char **name);

/* ---- a node's side ---- */

struct package_limits {
    uint64_t bytes; /* of all files */
    size_t files;
};
/* Unpacks ZIP (a path) into DIR, which exists and is empty. Ends early with RAIA_ESTOPPED when
 * *CANCEL becomes true (may be NULL). What a failure leaves in DIR is the caller's to remove. */
raia_status package_unpack(const char *zip, const char *dir, const struct package_limits *limits,
                           const atomic_bool *cancel);
/* The same from memory. */
raia_status package_unpack_memory(const void *data, size_t len, const char *dir,
                                  const struct package_limits *limits);

/* ---- a client's side ---- */

struct package_entry {
    char *path; /* relative, '/' between components; "." is the root */
    bool folder;
    unsigned mode;
    uint64_t size;
};
struct package_plan {
    char *root;
    struct package_entry *entries;
    size_t count, cap;
    uint64_t bytes;
    uint8_t hash[8];
};
/* Lists and hashes what of DIR belongs into its package: everything but what .gitignore and
 * .rayignore files, EXCLUDES (git's pattern language, relative to DIR) and the defaults (.git,
 * .venv, venv, __pycache__) leave out. Too large a folder is RAIA_EINVAL and names the largest
 * files. */
raia_status package_scan(struct package_plan *plan, const char *dir, const char *const *excludes,
                         size_t nexcludes);
void package_plan_release(struct package_plan *plan);
/* "_ray_pkg_<16 hex>.zip" */
enum { PACKAGE_NAME = 48 };
void package_plan_name(const struct package_plan *plan, char out[PACKAGE_NAME]);
/* Writes the zip to PATH. A file that changed its size since the scan is RAIA_EIO and named. */
raia_status package_write(const struct package_plan *plan, const char *path);

/* libarchive converts names through the thread's locale; in "C" it would spoil names beyond ASCII.
 */
struct package_locale {
    void *own, *before;
};
struct package_locale package_locale_enter(void);
void package_locale_leave(struct package_locale locale);

#endif
