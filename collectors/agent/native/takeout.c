#include "takeout.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "pool.h"
#include "switch.h"
#include "walk.h"

#define PATIENCE_MS 50

/* Nobody has said so yet counts as "may exist": a C++ trainer is never taken out of. */
enum graphs { UNASKED, NONE, POSSIBLE };
static _Atomic int graphs = UNASKED;
static atomic_bool never;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Finalizing takes 1.5-3 ms on an H200; a capture that begins meanwhile waits for it. */
void takeout_graphs(bool may_exist)
{
    if (!may_exist) {
        int unasked = UNASKED;
        atomic_compare_exchange_strong(&graphs, &unasked, NONE);
        return;
    }
    atomic_store(&graphs, POSSIBLE);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += PATIENCE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    if (pthread_mutex_timedlock(&lock, &until) == 0)
        pthread_mutex_unlock(&lock);
}

void takeout_never(void) { atomic_store(&never, true); }
bool graphs_ruled_out(void) { return atomic_load(&graphs) == NONE; }
bool graphs_possible(void) { return atomic_load(&graphs) == POSSIBLE; }

bool takeout(const struct cupti *cupti)
{
    struct pool_counts pool;
    bool out = false;
    if (walked.graph_kernels != 0 || walked.graph_launches != 0)
        atomic_store(&graphs, POSSIBLE);
    pool_count(&pool);
    if (pool.lent != 0 || cupti->finalize == NULL || atomic_load(&never))
        return false;
    pthread_mutex_lock(&lock);
    if (atomic_load(&graphs) == NONE)
        out = switch_finalize(cupti);
    pthread_mutex_unlock(&lock);
    return out;
}

void takeout_forked(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
}
