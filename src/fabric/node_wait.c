/* Barriers and counters of a node.
 *
 * A waiter tries, spins for a moment when each rank has a processor of its own, lets others run a
 * few times, and then sleeps on the word's futex. Poster and sleeper meet through two sequentially
 * consistent accesses: the poster writes the value and then reads `sleepers`, the sleeper raises
 * `sleepers` and then reads the value, so one of them sees the other; the futex itself refuses to
 * sleep when the value has moved on. */
#include "fabric/node_priv.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Yields before a sleep: with four ranks a core a barrier takes 3 us with 16 of them, 33 us with
 * none, and no more of a busy machine than sleeping does. */
enum { SPIN_NS = 20000, SPIN_BATCH = 32, YIELDS = 16 };

#if defined(__x86_64__)
#define pause_cpu() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define pause_cpu() __asm__ volatile("yield")
#else
#define pause_cpu() ((void)0)
#endif

/* What is waited for: VALUE at `at`, or at all `count` words from there on; the sleep is on `word`.
 */
struct goal {
    const struct node_word *at;
    int count;
    uint64_t value;
    struct node_word *word;
    const char *what; /* "barrier", "counter" */
    int counter;      /* or -1 */
};

static uint64_t value_of(const struct node_word *word)
{
    return atomic_load(&word->value);
}

static bool reached(const struct goal *goal)
{
    for (int i = 0; i < goal->count; i++)
        if (value_of(&goal->at[i]) < goal->value)
            return false;
    return true;
}

static uint32_t *futex_of(struct node_word *word)
{
    return (uint32_t *)(void *)&word->value;
}

static void sleep_on(struct node_word *word, uint32_t seen)
{
    const struct timespec tick = { .tv_nsec = NODE_TICK_MS * 1000000L };
    syscall(SYS_futex, futex_of(word), FUTEX_WAIT, seen, &tick, NULL, 0);
}

static void wake_sleepers(struct node_word *word)
{
    if (atomic_load(&word->sleepers) > 0)
        syscall(SYS_futex, futex_of(word), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- who is late ---- */

static bool is_late(const struct node *node, const struct goal *goal, int who)
{
    if (goal->counter < 0)
        return atomic_load(&node->board->members[who].barrier) < goal->value;
    if (goal->count == 1)
        return goal->at == &node->counters[goal->counter * node->size + who];
    return value_of(&goal->at[who]) < goal->value;
}

static raia_status fail_late(const struct node *node, const struct goal *goal)
{
    struct buf names = { .max = 4096 };
    int late = 0;
    for (int who = 0; who < node->size; who++)
        if (is_late(node, goal, who) && late++ < 8)
            buf_printf(&names, "%s%d", late == 1 ? "" : ", ", node->first + who);
    raia_status status =
        fail(RAIA_ETIMEDOUT, "node %d, %s %d: rank %s%s did not come within %.0f s", node->node,
             goal->what, goal->counter < 0 ? (int)goal->value : goal->counter,
             names.data != NULL ? names.data : "?", late > 8 ? " and others" : "",
             (double)node->timeout_ns * 1e-9);
    buf_release(&names);
    return status;
}

/* ---- waiting ---- */

static bool spin_until(const struct goal *goal)
{
    uint64_t end = clock_ns() + SPIN_NS;
    do {
        for (int i = 0; i < SPIN_BATCH; i++) {
            if (reached(goal))
                return true;
            pause_cpu();
        }
    } while (clock_ns() < end);
    return false;
}

static bool yield_until(const struct goal *goal)
{
    for (int i = 0; i < YIELDS; i++) {
        sched_yield();
        if (reached(goal))
            return true;
    }
    return false;
}

static raia_status sleep_until(struct node *node, const struct goal *goal)
{
    uint64_t deadline = node->timeout_ns > 0 ? clock_ns() + node->timeout_ns : 0;
    for (;;) {
        uint32_t seen = (uint32_t)value_of(goal->word);
        atomic_fetch_add(&goal->word->sleepers, 1);
        if (!reached(goal))
            sleep_on(goal->word, seen);
        atomic_fetch_sub(&goal->word->sleepers, 1);
        if (reached(goal))
            return RAIA_OK;
        RAIA_TRY(control_check(node->control));
        if (deadline != 0 && clock_ns() >= deadline)
            return fail_late(node, goal);
    }
}

static raia_status wait_until(struct node *node, const struct goal *goal)
{
    if (reached(goal) || (node->spin && spin_until(goal)) || yield_until(goal))
        return RAIA_OK;
    return sleep_until(node, goal);
}

raia_status node_barrier(struct node *node)
{
    struct node_board *board = node->board;
    uint64_t turn = ++node->barriers;
    atomic_store_explicit(&board->members[node->rank].barrier, turn, memory_order_relaxed);
    uint64_t came = atomic_fetch_add(&board->arrived.value, 1) + 1;
    if (came == turn * (uint64_t)node->size) {
        atomic_store(&board->passed.value, turn);
        wake_sleepers(&board->passed);
        return RAIA_OK;
    }
    const struct goal goal = { &board->passed, 1, turn, &board->passed, "barrier", -1 };
    return wait_until(node, &goal);
}

/* ---- counters ---- */

static struct node_word *words_of(struct node *node, int counter)
{
    return &node->counters[counter * node->size];
}

/* Raises the value that all have reached, so that those who sleep for all wake once, not at each
 * post. */
static void raise_all(struct node *node, int counter)
{
    struct node_word *all = &node->board->all[counter], *words = words_of(node, counter);
    uint64_t least = UINT64_MAX, known = value_of(all);
    for (int who = 0; who < node->size; who++) {
        uint64_t value = value_of(&words[who]);
        least = value < least ? value : least;
    }
    while (known < least)
        if (atomic_compare_exchange_weak(&all->value, &known, least)) {
            wake_sleepers(all);
            return;
        }
}

void node_post(struct node *node, int counter, uint64_t value)
{
    struct node_word *word = &words_of(node, counter)[node->rank];
    atomic_store(&word->value, value);
    wake_sleepers(word);
    if (atomic_load(&node->board->all[counter].sleepers) > 0)
        raise_all(node, counter);
}

raia_status node_wait(struct node *node, int who, int counter, uint64_t value)
{
    struct node_word *word = &words_of(node, counter)[who];
    const struct goal goal = { word, 1, value, word, "counter", counter };
    return wait_until(node, &goal);
}

raia_status node_wait_all(struct node *node, int counter, uint64_t value)
{
    const struct goal goal = { words_of(node, counter),    node->size, value,
                               &node->board->all[counter], "counter",  counter };
    return wait_until(node, &goal);
}

bool node_reached(struct node *node, int who, int counter, uint64_t value)
{
    return value_of(&words_of(node, counter)[who]) >= value;
}

bool node_reached_all(struct node *node, int counter, uint64_t value)
{
    const struct goal goal = { .at = words_of(node, counter), .count = node->size, .value = value };
    return reached(&goal);
}
