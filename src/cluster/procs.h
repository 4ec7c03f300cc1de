/* procs: what /proc tells about processes: who descends from whom, who carries a mark in its
 * environment, and whether a pid is still the process that it was. */
#ifndef RAIA_CLUSTER_PROCS_H
#define RAIA_CLUSTER_PROCS_H

#include "base/base.h"

#include <sys/types.h>

struct procs_row {
    pid_t pid, parent, session;
    bool zombie, chosen;
};
struct procs {
    struct procs_row *rows;
    size_t count, cap;
};

/* Reads the table of all processes that this user can see. Released by procs_release; may be read
 * again. */
raia_status procs_read(struct procs *procs);
void procs_release(struct procs *procs);
/* Marks all rows as not chosen. */
void procs_clear(struct procs *procs);
/* Chooses every descendant of ROOT (not ROOT itself); INCLUDE also the row of ROOT. */
void procs_choose_tree(struct procs *procs, pid_t root, bool include);
void procs_choose_session(struct procs *procs, pid_t session);
/* Chooses rows whose environment has MARK ("NAME=VALUE"). WITHIN: only descendants of it; 0: all.
 */
void procs_choose_marked(struct procs *procs, const char *mark, pid_t within);
/* Sends SIGNAL (0: none) to every chosen process that is no zombie and not this one; returns how
 * many. */
size_t procs_signal(const struct procs *procs, int signal);

/* Kills every process that carries MARK, again and again until none is left or the deadline passes.
 * Returns how many are left. */
size_t procs_kill_marked(const char *mark, uint64_t deadline);

/* Clock ticks since boot at which PID started: with the pid it names one process for ever. 0: no
 * such process. */
uint64_t procs_start_time(pid_t pid);
/* Waits until PID ends or the deadline passes; true when it has ended. Works for any process. */
bool procs_wait_end(pid_t pid, uint64_t deadline);

#endif
