/* supervise: the small process between an agent and the processes of one job on its node. It starts
 * them, reads their output by lines, reports how they ended, and ends them: it is their subreaper,
 * so that nothing that they start can leave its tree. When its agent is gone it ends everything and
 * itself.
 *
 * It speaks the link's messages over a socket pair (descriptor SUPERVISE_FD).
 *   to it:   {"type":"spawn","proc":n,"argv":[..],"env":{..},"cwd":"/..","prefix":".."}
 *            {"type":"stop","procs":[n,..],"signal":15,"grace_ms":3000}
 *            {"type":"close","signal":15,"grace_ms":3000}      end everything, answer "closed",
 * exit from it: {"type":"started","proc":n,"pid":p}
 *            {"type":"ended","proc":n,"code":c,"signal":s,"reason":"..","last":["..",..]}
 *            {"type":"closed","left":0}                        how many processes would not die
 *            log frames, whole lines of valid UTF-8 */
#ifndef RAIA_CLUSTER_SUPERVISE_H
#define RAIA_CLUSTER_SUPERVISE_H

#include "base/base.h"

enum { SUPERVISE_FD = 3 };

/* The supervisor's whole life; returns when its job is closed or its agent is gone. */
raia_status supervise_run(void);

#endif
