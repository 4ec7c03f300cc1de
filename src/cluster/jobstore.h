/* jobstore: the head's durable state as records of JSON text, by kind and key. Today one SQLite
 * file; the interface is what another keeper (Redis, where an operator gives one) has to offer, no
 * more. A put is durable against the death of the process when it returns. */
#ifndef RAIA_CLUSTER_JOBSTORE_H
#define RAIA_CLUSTER_JOBSTORE_H

#include "base/base.h"

struct jobstore;
raia_status jobstore_open(struct jobstore **out, const char *path);
void jobstore_close(struct jobstore *store);
raia_status jobstore_put(struct jobstore *store, const char *kind, const char *key,
                         const char *text);
raia_status jobstore_delete(struct jobstore *store, const char *kind, const char *key);
/* Calls EACH for every record of KIND in the order of their first put; a failure ends the walk. */
raia_status jobstore_each(struct jobstore *store, const char *kind,
                          raia_status (*each)(void *self, const char *key, const char *text),
                          void *self);

#endif
