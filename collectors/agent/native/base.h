/* What every part uses: clocks, a condition, JSON text, descriptors of ours, and what the parts may ask of the whole. */
#pragma once

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "brrrtop_agent.h"

/* The two clocks: REALTIME is the wire's and CUPTI's, MONOTONIC is for deadlines. */

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

/* A lock, and a condition whose deadlines are on the monotonic clock. */

struct condition {
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool made;
};

#define NEWS_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false}

static inline void condition_hold(struct condition *news)
{
    pthread_condattr_t kind;
    pthread_mutex_lock(&news->lock);
    if (news->made)
        return;
    /* No static initializer knows the clock: made with the lock held, before anybody can wait. */
    pthread_condattr_init(&kind);
    pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
    pthread_cond_init(&news->told, &kind);
    pthread_condattr_destroy(&kind);
    news->made = true;
}

/* With the lock held; false once the time is over. May return early, as conditions do. */
static inline bool condition_wait(struct condition *news, int64_t until_ns)
{
    struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
    return pthread_cond_timedwait(&news->told, &news->lock, &until) == 0;
}

/* In a fork's child, where no other thread is left: nobody holds it. */
static inline void condition_forked(struct condition *news) { *news = (struct condition)NEWS_INITIALIZER; }

/* JSON text in a fixed room. What does not fit is cut and `cut` says so. */

struct text {
    char *at;
    size_t room, used;
    bool cut;
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string, quotes included. Bytes that are no text become `?`. */
void text_quote(struct text *text, const char *value);

/* Descriptors of ours, known by what they are and not by their number alone: a trainer may close every
 * descriptor there is and open files of its own under the same numbers. */

struct own_fd {
    atomic_int fd; /* -1: none */
    _Atomic uint64_t device, inode;
};

/* Takes over `fd`, under a high number that loops over the low ones miss. */
void own_fd_keep(struct own_fd *own, int fd);

/* The number still means the descriptor it was given to. False for none. Keeps errno. */
bool own_fd_holds(const struct own_fd *own);

/* Closes it, unless the number has become somebody else's; none is left. */
void own_fd_close(struct own_fd *own);

/* What the parts may ask of the whole. */

/* Of the present start, as brrr_start describes them. Written while there is no agent's thread. */
struct options {
    uint32_t buffer_bytes, max_buffers, outbox_bytes, idle_retract_ms, drain_ms, flush_ms;
    char cupti[400]; /* a libcupti for a process that has mapped none; empty: none */
};
extern struct options options;

/* 0, or a negative enum brrr_code with its sentence. */
int options_read(const char *text);

/* Makes the agent's thread look around. Async-signal-safe, any thread. */
void agent_wake(void);

/* A monitor asked for the end. */
void agent_detach(void);

/* Somebody wants to see more: a detach that has not come to its end is void. */
void agent_stay(void);

/* CUPTI has been used for the first time. */
void agent_guard_exit(void);

bool agent_exiting(void);
bool agent_listens(void);

/* The parts that begin anew in a fork's child, where no other thread is left. */
#define FORKED_PARTS(X)                                                                            \
    X(abi) X(server) X(outbox) X(inbox) X(names) X(pool)                                           \
    X(switch) X(cupti) X(trace) X(safepoint) X(report) X(requests)
#define FORKED(part) void part##_forked(void);
FORKED_PARTS(FORKED)
#undef FORKED

/* Remembers the sentence for brrr_last_error and answers `code`. */
int agent_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
