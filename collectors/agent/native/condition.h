/* A lock, and a condition whose deadlines are on the monotonic clock. */
#ifndef BRRR_CONDITION_H
#define BRRR_CONDITION_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct condition {
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool made;
};

#define NEWS_INITIALIZER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false}

void condition_hold(struct condition *news);
void condition_release(struct condition *news);

/* With the lock held: wakes all who wait. */
void condition_tell(struct condition *news);

/* With the lock held; false once the time is over. May return early, as conditions do. */
bool condition_wait(struct condition *news, int64_t until_ns);

/* In a fork's child, where no other thread is left: nobody holds it. */
void condition_forked(struct condition *news);

#endif
