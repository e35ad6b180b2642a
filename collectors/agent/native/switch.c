#include "trace.h"

#define DEVICE_MEMORY_BYTES (64u << 20)
#define DEVICE_BUFFERS 8
#define REFUSED_IN_A_ROW 64
#define CLOCK_SLACK_NS (50 * NS_PER_MS)
#define PATIENCE_MS 50

static struct {
    bool registered;
    uint64_t kinds;          /* ours, by bit */
    bool limited, shrunk;
    size_t found_limit, found_size;
} on;

#define ATTRIBUTE(cupti, way, which, value)                                                        \
    CUPTI_CALL(cupti, way##_attribute, ATTR_##which, &(size_t){sizeof *(value)}, value)

/* CUPTI keeps up to so many buffers of the user's device memory a context. */
static void limit_device_memory(const struct cupti *cupti)
{
    size_t most = DEVICE_BUFFERS, smaller = DEVICE_MEMORY_BYTES / DEVICE_BUFFERS, size = 0;
    if (!on.limited && ATTRIBUTE(cupti, get, DEVICE_BUFFER_POOL_LIMIT, &on.found_limit) == CUPTI_OK &&
        on.found_limit > most)
        on.limited = ATTRIBUTE(cupti, set, DEVICE_BUFFER_POOL_LIMIT, &most) == CUPTI_OK;
    if (!on.shrunk && ATTRIBUTE(cupti, get, DEVICE_BUFFER_SIZE, &size) == CUPTI_OK && size > smaller) {
        on.found_size = size;
        on.shrunk = ATTRIBUTE(cupti, set, DEVICE_BUFFER_SIZE, &smaller) == CUPTI_OK;
    }
}

/* torch.profiler leaves this off, and then all launching threads share one buffer and its lock. */
static void buffer_each_thread(const struct cupti *cupti)
{
    uint8_t each = 1;
    if (ATTRIBUTE(cupti, get, PER_THREAD_ACTIVITY_BUFFER, &each) != CUPTI_OK || each != 0)
        return;
    each = 1;
    ATTRIBUTE(cupti, set, PER_THREAD_ACTIVITY_BUFFER, &each);
}

static uint64_t wall_clock(void) { return (uint64_t)real_ns(); }

/* torch.profiler may have given CUPTI its own clock, in cycles of the processor. */
static void right_clock(const struct cupti *cupti)
{
    uint64_t told = 0;
    if (CUPTI_CALL(cupti, get_timestamp, &told) != CUPTI_OK)
        return;
    if (llabs((long long)told - (long long)real_ns()) > CLOCK_SLACK_NS)
        CUPTI_CALL(cupti, register_clock, wall_clock);
}

bool switch_takes(uint32_t kind) { return on.kinds & UINT64_C(1) << kind; }

static int enable_kind(const struct cupti *cupti, uint32_t kind)
{
    int code = CUPTI_CALL(cupti, enable, kind);
    if (code == CUPTI_OK)
        on.kinds |= UINT64_C(1) << kind;
    return code;
}

static void disable_kind(const struct cupti *cupti, uint32_t kind)
{
    if (CUPTI_CALL(cupti, disable, kind) == CUPTI_OK)
        on.kinds &= ~(UINT64_C(1) << kind);
}

/* Rows of the wanted calls: the whole kind, less every other id. Enabling ids one by one is
 * documented too, and answers "success", but CUPTI 13.0.85 then delivers no row at all while each
 * launch pays for it (measured on an H200; benchmarks/lab). About 0.4 ms an API. */
static void enable_calls(const struct cupti *cupti, bool driver)
{
    uint32_t kind = driver ? KIND_DRIVER : KIND_RUNTIME;
    int (*turn)(uint32_t, uint8_t) = driver ? cupti->enable_driver : cupti->enable_runtime;
    bool ids[CALL_IDS] = {false};
    for (size_t i = 0; i < CALL_COUNT; i++)
        if (CALLS[i].driver == driver)
            ids[CALLS[i].cbid] = true;
    if (enable_kind(cupti, kind) != CUPTI_OK)
        return;
    uint32_t silenced = 0;
    for (uint32_t id = 1, refused = 0; id < CALL_IDS && refused < REFUSED_IN_A_ROW; id++) {
        if (ids[id])
            continue;
        if (!cupti_enter())
            return;
        /* Past the last id of this version every answer is an error, which is no fault. */
        refused = turn(id, 0) == CUPTI_OK ? 0 : refused + 1;
        silenced += refused == 0;
        cupti_leave(CUPTI_OK, "");
    }
    /* A row for every call would cost each launch far more than they tell. */
    if (silenced == 0)
        disable_kind(cupti, kind);
}

bool switch_driver(const struct cupti *cupti, bool take)
{
    if (take)
        enable_calls(cupti, true);
    else
        disable_kind(cupti, KIND_DRIVER);
    return switch_takes(KIND_DRIVER);
}

bool switch_on(const struct cupti *cupti, bool runtime, bool driver, int *code)
{
    limit_device_memory(cupti);
    buffer_each_thread(cupti);
    right_clock(cupti);
    *code = CUPTI_OK;
    if (!on.registered) {
        *code = CUPTI_CALL(cupti, register_callbacks, pool_request, pool_complete);
        on.registered = *code == CUPTI_OK;
    }
    static const uint32_t DEVICE_KINDS[] = {KIND_CONCURRENT_KERNEL, KIND_MEMCPY, KIND_MEMSET};
    for (size_t i = 0; *code == CUPTI_OK && i < 3; i++)
        *code = enable_kind(cupti, DEVICE_KINDS[i]);
    if (world_lost())
        return true;
    if (*code != CUPTI_OK) {
        switch_off(cupti);
        switch_restore(cupti);
        return false;
    }
    if (tracing.has_calls && runtime)
        enable_calls(cupti, false);
    if (tracing.has_calls && driver)
        enable_calls(cupti, true);
    return true;
}

bool switch_off(const struct cupti *cupti)
{
    /* Calls first: a kernel without its launch is no sign of a loss, the reverse is. */
    static const uint32_t KINDS[] = {KIND_DRIVER, KIND_RUNTIME, KIND_MEMCPY, KIND_MEMSET, KIND_CONCURRENT_KERNEL};
    for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
        if (switch_takes(KINDS[i]))
            disable_kind(cupti, KINDS[i]);
    if (world_lost())
        return false;
    on.kinds = 0;
    return true;
}

bool switch_changed(void) { return on.limited || on.shrunk; }

void switch_restore(const struct cupti *cupti)
{
    if (on.limited)
        ATTRIBUTE(cupti, set, DEVICE_BUFFER_POOL_LIMIT, &on.found_limit);
    if (on.shrunk)
        ATTRIBUTE(cupti, set, DEVICE_BUFFER_SIZE, &on.found_size);
    on.limited = on.shrunk = false;
}

void switch_forget(void) { on.registered = false; }

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
    pthread_mutex_unlock(&news.lock);
}

void graphs_seen(void) { atomic_store(&graphs, POSSIBLE); }
bool graphs_told(void) { return atomic_load(&told); }
void finalize_never(void) { atomic_store(&never, true); }
bool graphs_ruled_out(void) { return atomic_load(&graphs) == NONE; }
bool graphs_possible(void) { return atomic_load(&graphs) == POSSIBLE; }

/* Out of it, a launch saves 0.5 us that stay where a kind is only disabled (H200, CUPTI 13.0). Only with nothing on,
 * everything drained, and no CUDA graph in the process: a replay that runs meanwhile fails (benchmarks/lab,
 * `graphs`). */
bool takeout(const struct cupti *cupti)
{
    if (records_seen.graph_kernels != 0 || records_seen.graph_launches != 0)
        graphs_seen();
    if (pool_lent_since_ns() != INT64_MAX || cupti->finalize == NULL || atomic_load(&never))
        return false;
    condition_hold(&news);
    finalizing = atomic_load(&graphs) == NONE;
    pthread_mutex_unlock(&news.lock);
    if (!finalizing)
        return false;
    bool out = false;
    if (on.kinds == 0) {
        switch_restore(cupti);
        out = CUPTI_CALL(cupti, finalize) == CUPTI_OK;
        on.registered &= !out;
    }
    condition_hold(&news);
    finalizing = false;
    pthread_cond_broadcast(&news.told);
    pthread_mutex_unlock(&news.lock);
    return out;
}

void switch_forked(void)
{
    on.registered = on.limited = on.shrunk = false;
    on.kinds = 0;
    condition_forked(&news);
    finalizing = false;
}
