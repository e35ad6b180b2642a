/* A lock, and a condition whose deadlines are on the monotonic clock. */
#ifndef BRRR_CONDITION_H
#define BRRR_CONDITION_H

#include <pthread.h>
#include <stdbool.h>

#include "clock.h"

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

static inline void condition_release(struct condition *news) { pthread_mutex_unlock(&news->lock); }

/* With the lock held: wakes all who wait. */
static inline void condition_tell(struct condition *news) { pthread_cond_broadcast(&news->told); }

/* With the lock held; false once the time is over. May return early, as conditions do. */
static inline bool condition_wait(struct condition *news, int64_t until_ns)
{
    struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
    return pthread_cond_timedwait(&news->told, &news->lock, &until) == 0;
}

/* In a fork's child, where no other thread is left: nobody holds it. */
static inline void condition_forked(struct condition *news) { *news = (struct condition)NEWS_INITIALIZER; }

#endif
