#include "kernels/cpu/pool.h"

#include "base/base.h"
#include "tensor/tensor.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 2000 };

struct pool {
    int threads, spins;
    pool_task *task;
    void *arg;
    _Atomic uint32_t round;   /* grows with each task; workers sleep on it */
    _Atomic uint32_t running; /* workers that have not finished; the caller sleeps on it */
    _Atomic bool ending;
    pthread_t *thread; /* [threads - 1] */
    int started;
    _Atomic int named; /* workers that have taken their number */
};

static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

/* Returns when *WORD is no longer VALUE. */
static void wait_change(const struct pool *p, _Atomic uint32_t *word, uint32_t value)
{
    for (int i = 0; i < p->spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value)
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    while (atomic_load_explicit(word, memory_order_acquire) == value)
        sleep_while(word, value);
}

static void *work(void *self)
{
    struct pool *p = self;
    int number = atomic_fetch_add(&p->named, 1) + 1;
    for (uint32_t seen = 0;;) {
        wait_change(p, &p->round, seen);
        seen++;
        if (atomic_load(&p->ending))
            return NULL;
        p->task(p->arg, number);
        if (atomic_fetch_sub(&p->running, 1) == 1)
            wake(&p->running);
    }
}

raia_status pool_open(struct pool **out, int threads)
{
    struct pool *p;
    RAIA_TRY(MEM_NEW(&p, 1));
    p->threads = threads;
    p->spins = threads <= device_cores() ? SPINS : 0;
    raia_status status = MEM_NEW(&p->thread, (size_t)threads);
    for (int i = 0; status == RAIA_OK && i < threads - 1; i++) {
        int error = pthread_create(&p->thread[i], NULL, work, p);
        if (error != 0)
            status = fail(RAIA_ENOMEM, "cannot start thread %d of %d: %s", i + 2, threads,
                          strerror(error));
        else
            p->started++;
    }
    if (status != RAIA_OK) {
        pool_close(p);
        return status;
    }
    *out = p;
    return RAIA_OK;
}

void pool_close(struct pool *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->ending, true);
    atomic_fetch_add(&p->round, 1);
    wake(&p->round);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->thread[i], NULL);
    free(p->thread);
    free(p);
}

int pool_threads(const struct pool *pool)
{
    return pool->threads;
}

void pool_run(struct pool *p, pool_task *task, void *arg)
{
    if (p->threads > 1) {
        p->task = task;
        p->arg = arg;
        atomic_store(&p->running, (uint32_t)p->threads - 1);
        atomic_fetch_add(&p->round, 1);
        wake(&p->round);
    }
    task(arg, 0);
    for (uint32_t left; (left = atomic_load(&p->running)) != 0;)
        wait_change(p, &p->running, left);
}
