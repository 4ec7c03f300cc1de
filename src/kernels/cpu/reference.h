/* reference: the table of plain C that says what every operation means: one thread, sums in f64, no
 * vector code. The other tables are tested against it. */
#ifndef RAIA_KERNELS_REFERENCE_H
#define RAIA_KERNELS_REFERENCE_H

#include "tensor/tensor.h"

#define X(op) raia_status reference_##op(struct device *device, const struct op *a);
OPS_MAP(X)
#undef X

/* Opens a device of this table; it needs nothing of its own. */
raia_status reference_open(struct device **out);

#endif
