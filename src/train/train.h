/* train: what a train function sees (include/raia/raia.h), and the two sides of raia_fit.
 *
 * driver: the process that calls raia_fit by hand or as a cluster's job. Serves the control
 * channel, starts the ranks, gathers their reports and evidence, names the first cause of a
 * failure, prints the verdict.
 *
 * rank: the same program started again; joins the fabric, runs the train function, leaves.
 *
 * Beyond the public header this room shows only what `raia train` needs. */
#ifndef RAIA_TRAIN_H
#define RAIA_TRAIN_H

#include <raia/raia.h>

/* RAIA_EINVAL when a model cannot be saved at DIR because something is there already; for a driver
 * to ask before any step is paid for. */
raia_status save_check(const char *dir);

#endif
