/* What ranks tell the driver over the control channel. A rank is trusted no further than its
 * token: a malformed event is dropped. */
#include "train/train_priv.h"

#include <string.h>

void driver_fail(struct driver *d, int rank, raia_status status, const char *text)
{
    pthread_mutex_lock(&d->lock);
    bool first = d->first.status == RAIA_OK;
    bool better = d->first.status == RAIA_EPEER && status != RAIA_EPEER && status != RAIA_ETIMEDOUT;
    if (first || better) {
        d->first = (struct failure){ .status = status, .rank = rank };
        snprintf(d->first.text, sizeof d->first.text, "%s", text);
    }
    pthread_mutex_unlock(&d->lock);
}

static void on_failed(struct driver *d, int rank, const json_t *event)
{
    char text[2048];
    int64_t status;
    const char *said;
    if (json_get_i64(event, "event", "status", 1, RAIA_STATUS_COUNT - 1, &status) != RAIA_OK ||
        json_get_string(event, "event", "text", &said) != RAIA_OK)
        return;
    snprintf(text, sizeof text, "rank %d: %s", rank, said);
    driver_fail(d, rank, (raia_status)status, text);
}

static void on_report(struct driver *d, int rank, const json_t *event)
{
    if (rank != 0)
        return;
    pthread_mutex_lock(&d->lock);
    reports_add(&d->reports, json_object_get(event, "values"));
    pthread_mutex_unlock(&d->lock);
}

static void keep(struct driver *d, json_t *where, int rank, const json_t *event)
{
    char key[16];
    snprintf(key, sizeof key, "%d", rank);
    pthread_mutex_lock(&d->lock);
    json_object_set(where, key, json_object_get(event, "evidence"));
    pthread_mutex_unlock(&d->lock);
}

static void on_before(struct driver *d, int rank, const json_t *event)
{
    keep(d, d->before, rank, event);
}

static void on_after(struct driver *d, int rank, const json_t *event)
{
    keep(d, d->after, rank, event);
}

static const struct {
    const char *name;
    void (*handle)(struct driver *driver, int rank, const json_t *event);
} handlers[] = {
    { "failed", on_failed },
    { "report", on_report },
    { "before", on_before },
    { "after", on_after },
};

static void on_event(void *self, int rank, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "event"));
    for (size_t i = 0; name != NULL && i < sizeof handlers / sizeof handlers[0]; i++)
        if (strcmp(handlers[i].name, name) == 0)
            handlers[i].handle(self, rank, event);
}

static raia_status on_chunk(void *self, int rank, const char *name, uint64_t offset,
                            const void *data, size_t len)
{
    (void)rank;
    struct driver *d = self;
    pthread_mutex_lock(&d->lock);
    raia_status status = save_chunk(&d->save, name, offset, data, len);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static void on_lost(void *self, int rank, bool clean)
{
    /* Its process ends too, and the launcher then tells how. */
    (void)self;
    (void)rank;
    (void)clean;
}

struct control_callbacks driver_callbacks(struct driver *driver)
{
    return (struct control_callbacks){
        .self = driver, .event = on_event, .chunk = on_chunk, .lost = on_lost
    };
}

static raia_status by_rank(const json_t *object, int size, const char *when, json_t **out)
{
    json_t *list = json_array();
    for (int r = 0; r < size; r++) {
        char key[16];
        snprintf(key, sizeof key, "%d", r);
        json_t *evidence = json_object_get(object, key);
        if (evidence == NULL) {
            json_decref(list);
            return fail(RAIA_EPEER,
                        "rank %d ended well but left no evidence of the wire %s the run", r, when);
        }
        json_array_append(list, evidence);
    }
    *out = list;
    return RAIA_OK;
}

raia_status driver_verdict(struct driver *d, json_t **out)
{
    json_t *before = NULL, *after = NULL;
    raia_status status = by_rank(d->before, d->size, "before", &before);
    if (status == RAIA_OK)
        status = by_rank(d->after, d->size, "after", &after);
    if (status == RAIA_OK)
        status = evidence_verdict(before, after, d->settings->run.require_fabric, out);
    json_decref(before);
    json_decref(after);
    return status;
}
