#include "condition.h"

#include <time.h>

#include "clock.h"

/* No static initializer knows the clock: made with the lock held, before anybody can wait. */
static void make(struct condition *news)
{
    pthread_condattr_t kind;
    pthread_condattr_init(&kind);
    pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
    pthread_cond_init(&news->told, &kind);
    pthread_condattr_destroy(&kind);
    news->made = true;
}

void condition_hold(struct condition *news)
{
    pthread_mutex_lock(&news->lock);
    if (!news->made)
        make(news);
}

void condition_release(struct condition *news) { pthread_mutex_unlock(&news->lock); }

void condition_tell(struct condition *news) { pthread_cond_broadcast(&news->told); }

bool condition_wait(struct condition *news, int64_t until_ns)
{
    struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
    return pthread_cond_timedwait(&news->told, &news->lock, &until) == 0;
}

void condition_forked(struct condition *news)
{
    static const struct condition fresh = NEWS_INITIALIZER;
    *news = fresh;
}
