#include "cluster/jobstore.h"

#include <sqlite3.h>
#include <stdlib.h>

enum statement { PUT, DELETE, EACH, STATEMENTS };
enum { FORMAT = 1 }; /* of the file; a newer one is refused */

struct jobstore {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    char *path;
};

static const char *const texts[STATEMENTS] = {
    [PUT] = "INSERT INTO records(kind, key, text) VALUES(?1, ?2, ?3) "
            "ON CONFLICT(kind, key) DO UPDATE SET text = excluded.text",
    [DELETE] = "DELETE FROM records WHERE kind = ?1 AND key = ?2",
    [EACH] = "SELECT key, text FROM records WHERE kind = ?1 ORDER BY id",
};

static raia_status trouble(const struct jobstore *store, const char *what)
{
    return fail(RAIA_EIO, "state file %s: %s: %s", store->path, what, sqlite3_errmsg(store->db));
}

static int read_int(void *self, int columns, char **values, char **names)
{
    (void)names;
    *(int *)self = columns > 0 && values[0] != NULL ? atoi(values[0]) : 0;
    return 0;
}

static raia_status run(struct jobstore *store, const char *sql, int *out)
{
    if (sqlite3_exec(store->db, sql, out != NULL ? read_int : NULL, out, NULL) != SQLITE_OK)
        return trouble(store, "cannot prepare it");
    return RAIA_OK;
}

static raia_status prepare(struct jobstore *store)
{
    int format = 0;
    /* WAL with NORMAL survives a killed process; only a power cut may lose the last records. */
    RAIA_TRY(run(store, "PRAGMA journal_mode = WAL", NULL));
    RAIA_TRY(run(store, "PRAGMA synchronous = NORMAL", NULL));
    RAIA_TRY(run(store, "PRAGMA user_version", &format));
    if (format > FORMAT)
        return fail(RAIA_EUNSUPPORTED,
                    "state file %s was written by a newer raia (format %d, this one knows %d)",
                    store->path, format, FORMAT);
    RAIA_TRY(run(store,
                 "CREATE TABLE IF NOT EXISTS records(id INTEGER PRIMARY KEY AUTOINCREMENT, "
                 "kind TEXT NOT NULL, key TEXT NOT NULL, text TEXT NOT NULL, UNIQUE(kind, key))",
                 NULL));
    RAIA_TRY(run(store, "PRAGMA user_version = 1", NULL));
    for (int i = 0; i < STATEMENTS; i++)
        if (sqlite3_prepare_v3(store->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &store->statements[i], NULL) != SQLITE_OK)
            return trouble(store, "cannot prepare it");
    return RAIA_OK;
}

raia_status jobstore_open(struct jobstore **out, const char *path)
{
    struct jobstore *store;
    RAIA_TRY(MEM_NEW(&store, 1));
    store->path = str_format("%s", path);
    raia_status status = RAIA_OK;
    if (store->path == NULL)
        status = fail(RAIA_ENOMEM, "out of memory: a path");
    else if (sqlite3_open_v2(path, &store->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL) !=
             SQLITE_OK)
        status = trouble(store, "cannot open it");
    if (status == RAIA_OK) {
        sqlite3_busy_timeout(store->db, 2000);
        status = prepare(store);
    }
    if (status != RAIA_OK) {
        jobstore_close(store);
        return status;
    }
    *out = store;
    return RAIA_OK;
}

void jobstore_close(struct jobstore *store)
{
    if (store == NULL)
        return;
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(store->statements[i]);
    sqlite3_close(store->db);
    free(store->path);
    free(store);
}

static sqlite3_stmt *bind(struct jobstore *store, enum statement which, const char *kind,
                          const char *key, const char *text)
{
    sqlite3_stmt *s = store->statements[which];
    sqlite3_reset(s);
    sqlite3_bind_text(s, 1, kind, -1, SQLITE_TRANSIENT);
    if (key != NULL)
        sqlite3_bind_text(s, 2, key, -1, SQLITE_TRANSIENT);
    if (text != NULL)
        sqlite3_bind_text(s, 3, text, -1, SQLITE_TRANSIENT);
    return s;
}

static raia_status change(struct jobstore *store, sqlite3_stmt *s, const char *what)
{
    int code = sqlite3_step(s);
    raia_status status = code == SQLITE_DONE ? RAIA_OK : trouble(store, what);
    sqlite3_reset(s);
    return status;
}

raia_status jobstore_put(struct jobstore *store, const char *kind, const char *key,
                         const char *text)
{
    return change(store, bind(store, PUT, kind, key, text), "cannot write a record");
}

raia_status jobstore_delete(struct jobstore *store, const char *kind, const char *key)
{
    return change(store, bind(store, DELETE, kind, key, NULL), "cannot delete a record");
}

raia_status jobstore_each(struct jobstore *store, const char *kind,
                          raia_status (*each)(void *self, const char *key, const char *text),
                          void *self)
{
    sqlite3_stmt *s = bind(store, EACH, kind, NULL, NULL);
    raia_status status = RAIA_OK;
    int code;
    while (status == RAIA_OK && (code = sqlite3_step(s)) == SQLITE_ROW)
        status = each(self, (const char *)sqlite3_column_text(s, 0),
                      (const char *)sqlite3_column_text(s, 1));
    if (status == RAIA_OK && code != SQLITE_DONE)
        status = trouble(store, "cannot read it");
    sqlite3_reset(s);
    return status;
}
