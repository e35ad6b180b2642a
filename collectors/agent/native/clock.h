/* The two clocks: REALTIME is the wire's and CUPTI's, MONOTONIC is for deadlines. */
#ifndef BRRR_CLOCK_H
#define BRRR_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

static inline int64_t clock_ns(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static inline int64_t real_ns(void) { return clock_ns(CLOCK_REALTIME); }
static inline int64_t mono_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

#endif
