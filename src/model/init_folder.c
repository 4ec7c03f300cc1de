#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORKERS_MAX = 256 };

struct worker {
    const struct model_config *config;
    const char *dir;
    raia_dtype dtype;
    uint64_t seed;
    int part, parts;
    struct init_watch *watch;
    pthread_t thread;
    raia_status status;
    char text[1024]; /* the failure's, which is kept per thread */
};

static void *work(void *arg)
{
    struct worker *w = arg;
    w->status = model_init_part(w->config, w->dir, w->dtype, w->seed, w->part, w->parts, w->watch);
    if (w->status != RAIA_OK) {
        snprintf(w->text, sizeof w->text, "%s", raia_error());
        w->watch->stop = true;
    }
    return NULL;
}

/* What went wrong first is what made the others stop. */
static raia_status outcome(const struct worker *workers, int count)
{
    const struct worker *found = NULL;
    for (int i = 0; i < count; i++)
        if (workers[i].status != RAIA_OK && (found == NULL || found->status == RAIA_ESTOPPED))
            found = &workers[i];
    return found == NULL ? RAIA_OK : fail(found->status, "%s", found->text);
}

static raia_status run_workers(const struct worker *model, int count)
{
    struct worker *workers;
    RAIA_TRY(MEM_NEW(&workers, (size_t)count));
    int started = 0;
    raia_status status = RAIA_OK;
    for (; started < count && status == RAIA_OK; started++) {
        struct worker *w = &workers[started];
        *w = *model;
        w->part = started;
        w->parts = count;
        int error = pthread_create(&w->thread, NULL, work, w);
        if (error != 0) {
            status = fail(RAIA_EIO, "cannot start a thread: %s", strerror(error));
            w->watch->stop = true;
            break;
        }
    }
    for (int i = 0; i < started; i++)
        pthread_join(workers[i].thread, NULL);
    if (status == RAIA_OK)
        status = outcome(workers, started);
    free(workers);
    return status;
}

/* ---- the folder ---- */

static bool is_empty(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return false;
    int entries = 0;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        entries += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return entries == 0;
}

/* FORCE replaces a model, not whatever else a mistyped path holds. */
static raia_status check_target(const char *path, bool force)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return RAIA_OK;
    if (!S_ISDIR(st.st_mode))
        return fail(RAIA_EINVAL, "%s is there and not a folder: choose another name", path);
    if (is_empty(path))
        return RAIA_OK;
    if (!force)
        return fail(RAIA_EINVAL, "%s is not empty: choose another folder, or replace it (--force)",
                    path);
    char *config = path_join(path, "config.json");
    bool model = config != NULL && file_exists(config);
    free(config);
    return model ? RAIA_OK
                 : fail(RAIA_EINVAL, "%s has no config.json: what is not a model is not replaced",
                        path);
}

/* Puts ASIDE in PATH's place; what was there is removed after. */
static raia_status publish(const char *aside, const char *path)
{
    if (renameat2(AT_FDCWD, aside, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        RAIA_TRY(dir_sync_of(path));
        return dir_remove(aside);
    }
    if (errno != ENOENT && errno != EINVAL && errno != ENOSYS)
        return fail(RAIA_EIO, "cannot put %s in place: %s", path, strerror(errno));
    /* nothing to exchange with, or a file system that cannot */
    if (dir_exists(path) && !is_empty(path))
        RAIA_TRY(dir_remove(path));
    if (rename(aside, path) < 0)
        return fail(RAIA_EIO, "cannot rename %s to %s: %s", aside, path, strerror(errno));
    return dir_sync_of(path);
}

static raia_status make_aside(const char *path, char **out)
{
    char hex[9];
    RAIA_TRY(str_random_hex(hex, 4));
    char *aside = str_format("%s.tmp-%s", path, hex);
    if (aside == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    raia_status status = dir_make(aside, 0755);
    if (status != RAIA_OK) {
        free(aside);
        return status;
    }
    *out = aside;
    return RAIA_OK;
}

raia_status model_init_folder(const struct model_config *config, const char *out, raia_dtype dtype,
                              uint64_t seed, int workers, bool force, struct init_watch *watch)
{
    struct init_watch own = { 0 };
    char *path, *aside = NULL;
    if (workers < 1 || workers > WORKERS_MAX)
        return fail(RAIA_EINVAL, "%d workers are outside 1..%d", workers, WORKERS_MAX);
    if (out[0] == '\0')
        return fail(RAIA_EINVAL, "the folder to write has an empty name");
    path = path_join(out, "");
    if (path == NULL)
        return fail(RAIA_ENOMEM, "no memory for a path");
    path[strlen(path) > 1 ? strlen(path) - 1 : 1] = '\0'; /* no slash at the end */
    raia_status status = check_target(path, force);
    if (status == RAIA_OK)
        status = make_aside(path, &aside);
    if (status == RAIA_OK)
        status = run_workers(&(struct worker){ .config = config,
                                               .dir = aside,
                                               .dtype = dtype,
                                               .seed = seed,
                                               .watch = watch != NULL ? watch : &own },
                             workers);
    if (status == RAIA_OK)
        status = publish(aside, path);
    if (status != RAIA_OK && aside != NULL && dir_exists(aside)) {
        char text[1024];
        snprintf(text, sizeof text, "%s", raia_error());
        if (dir_remove(aside) != RAIA_OK)
            log_warn("%s is left behind: %s", aside, raia_error());
        fail(status, "%s", text);
    }
    free(aside);
    free(path);
    return status;
}
