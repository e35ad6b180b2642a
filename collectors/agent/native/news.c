#include "news.h"

#include <time.h>

#include "clock.h"

/* No static initializer knows the clock: made with the lock held, before anybody can wait. */
static void make(struct news *news)
{
    pthread_condattr_t kind;
    pthread_condattr_init(&kind);
    pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
    pthread_cond_init(&news->told, &kind);
    pthread_condattr_destroy(&kind);
    news->made = true;
}

void news_hold(struct news *news)
{
    pthread_mutex_lock(&news->lock);
    if (!news->made)
        make(news);
}

void news_release(struct news *news) { pthread_mutex_unlock(&news->lock); }

void news_tell(struct news *news) { pthread_cond_broadcast(&news->told); }

bool news_wait(struct news *news, int64_t until_ns)
{
    struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
    return pthread_cond_timedwait(&news->told, &news->lock, &until) == 0;
}

void news_forked(struct news *news)
{
    static const struct news fresh = NEWS_INITIALIZER;
    *news = fresh;
}
