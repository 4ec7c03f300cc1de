/* client: what the client's files share. */
#ifndef RAIA_CLUSTER_CLIENT_H
#define RAIA_CLUSTER_CLIENT_H

#include "cluster/cluster.h"

/* Fails with the status that an HTTP answer other than 2xx stands for, and with its text. */
raia_status client_refusal(long http, const char *text);
/* Downloads PATH of ADDRESS into the file TO, at most MAX bytes. For worker threads. */
raia_status client_download(const char *address, const char *token, const char *path,
                            const char *to, uint64_t max);

#endif
