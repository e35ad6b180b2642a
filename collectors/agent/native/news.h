/* A lock, and a condition whose deadlines are on the monotonic clock. */
#ifndef BRRR_NEWS_H
#define BRRR_NEWS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct news {
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool made;
};

#define NEWS_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false}

void news_hold(struct news *news);
void news_release(struct news *news);

/* With the lock held: wakes all who wait. */
void news_tell(struct news *news);

/* With the lock held; false once the time is over. May return early, as conditions do. */
bool news_wait(struct news *news, int64_t until_ns);

/* In a fork's child, where no other thread is left: nobody holds it. */
void news_forked(struct news *news);

#endif
