/* pool: a device's threads. One function at a time is run by all of them, each on its own part;
 * parts depend on the number of threads alone, so that the same device gives the same bits. */
#ifndef RAIA_KERNELS_POOL_H
#define RAIA_KERNELS_POOL_H

#include <raia/types.h>

#include <stddef.h>

struct pool;
typedef void pool_task(void *arg, int thread);

/* The caller is thread 0; a pool of one makes no thread. Idle threads sleep on a futex, after a
 * short spin where every thread can have a core. */
raia_status pool_open(struct pool **out, int threads);
void pool_close(struct pool *pool);
int pool_threads(const struct pool *pool);
void pool_run(struct pool *pool, pool_task *task, void *arg);

/* Part THREAD of N things over THREADS, in whole units of GRAIN. */
static inline void pool_part(size_t n, size_t grain, int thread, int threads, size_t *from,
                             size_t *to)
{
    size_t units = (n + grain - 1) / grain;
    *from = units * (size_t)thread / (size_t)threads * grain;
    *to = units * ((size_t)thread + 1) / (size_t)threads * grain;
    if (*from > n)
        *from = n;
    if (*to > n)
        *to = n;
}

#endif
