#include "finalize.h"

#include <stdatomic.h>

#include "clock.h"
#include "condition.h"
#include "pool.h"
#include "switch.h"
#include "records.h"

#define PATIENCE_MS 50

/* Nobody has said so yet counts as "may exist": a C++ trainer is never taken out of. */
enum graphs { UNASKED, NONE, POSSIBLE };
static _Atomic int graphs = UNASKED;
static atomic_bool told, never;
static struct condition news = NEWS_INITIALIZER;
static bool finalizing;

/* Finalizing takes 1.5-3 ms on an H200; a capture that begins meanwhile waits for it. */
void finalize_graphs(bool may_exist)
{
    atomic_store(&told, true);
    if (!may_exist) {
        int unasked = UNASKED;
        atomic_compare_exchange_strong(&graphs, &unasked, NONE);
        return;
    }
    atomic_store(&graphs, POSSIBLE);
    int64_t until_ns = mono_ns() + PATIENCE_MS * NS_PER_MS;
    condition_hold(&news);
    while (finalizing && condition_wait(&news, until_ns))
        continue;
    condition_release(&news);
}

void graphs_seen(void) { atomic_store(&graphs, POSSIBLE); }
bool graphs_told(void) { return atomic_load(&told); }
void finalize_never(void) { atomic_store(&never, true); }
bool graphs_ruled_out(void) { return atomic_load(&graphs) == NONE; }
bool graphs_possible(void) { return atomic_load(&graphs) == POSSIBLE; }

bool takeout(const struct cupti *cupti)
{
    struct pool_counts pool;
    if (records_seen.graph_kernels != 0 || records_seen.graph_launches != 0)
        graphs_seen();
    pool_count(&pool);
    if (pool.lent != 0 || cupti->finalize == NULL || atomic_load(&never))
        return false;
    condition_hold(&news);
    finalizing = atomic_load(&graphs) == NONE;
    condition_release(&news);
    if (!finalizing)
        return false;
    bool out = switch_finalize(cupti);
    condition_hold(&news);
    finalizing = false;
    condition_tell(&news);
    condition_release(&news);
    return out;
}

void finalize_forked(void)
{
    condition_forked(&news);
    finalizing = false;
}
