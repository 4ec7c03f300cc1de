#include "base/base.h"

#include <errno.h>
#include <limits.h>
#include <time.h>

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double clock_s(void)
{
    return (double)clock_ns() * 1e-9;
}

int64_t clock_wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void clock_sleep_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

uint64_t deadline_in_ms(uint64_t ms)
{
    return clock_ns() + ms * 1000000u;
}

int deadline_left_ms(uint64_t deadline)
{
    if (deadline == 0)
        return -1;
    uint64_t now = clock_ns();
    if (now >= deadline)
        return 0;
    uint64_t ms = (deadline - now + 999999u) / 1000000u;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}
