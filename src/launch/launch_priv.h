/* What the files of this room share: the table of launchers, and how it is filled. */
#ifndef RAIA_LAUNCH_PRIV_H
#define RAIA_LAUNCH_PRIV_H

#include "launch/launch.h"

struct launch {
    const struct launcher *launcher;
    void *impl;
};

/* A launcher: a way to come by ranks. To add one: a file with these functions and a row in
 * launchers.c. */
struct launcher {
    const char *name;
    bool (*applies)(void); /* does this process run under it? The first row that says so is taken */
    raia_status (*start)(const struct launch_request *request, void **impl, int *world_size,
                         int *nodes);
    raia_status (*wait)(void *impl, uint64_t deadline, struct launch_exit *out);
    raia_status (*stop)(void *impl, unsigned grace_ms);
    raia_status (*tell)(void *impl, const json_t *event); /* NULL: nobody listens */
    void (*free)(void *impl);
};
extern const struct launcher launch_head, launch_local;

/* "host:port" by which ranks reach this driver's control channel. */
raia_status launch_control_address(const struct launch_request *request, char *out, size_t size);

/* Splits a stream into lines and writes each whole line with a prefix, one write a line. */
struct lines {
    char prefix[32];
    char data[8192];
    size_t len;
    int out;
    char last[512]; /* the last line that was not empty, for error texts */
};
void lines_add(struct lines *lines, const char *data, size_t len);
void lines_end(struct lines *lines); /* writes a rest without a newline */

#endif
