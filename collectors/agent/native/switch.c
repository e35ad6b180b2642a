#include "switch.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "clock.h"
#include "pool.h"
#include "wire.h"

#define DEVICE_MEMORY_BYTES (64u << 20)
#define REFUSED_IN_A_ROW 64
#define WANT_CALLS (WANT_LAUNCHES | WANT_SYNCS | WANT_ALLOCS)
#define CLOCK_SLACK_NS (50 * NS_PER_MS)

static struct {
    bool registered;
    uint64_t kinds;          /* ours, by bit */
    bool limited, shrunk;
    size_t found_limit, found_size;
} on;

static bool get_size(const struct cupti *cupti, uint32_t attribute, size_t *value)
{
    size_t bytes = sizeof *value;
    return CUPTI_CALL(cupti, get_attribute, attribute, &bytes, value) == CUPTI_OK;
}

static bool set_size(const struct cupti *cupti, uint32_t attribute, size_t value)
{
    size_t bytes = sizeof value;
    return CUPTI_CALL(cupti, set_attribute, attribute, &bytes, &value) == CUPTI_OK;
}

/* CUPTI keeps up to `pool_limit` buffers of the user's device memory a context. */
static void limit_device_memory(const struct cupti *cupti, uint32_t pool_limit)
{
    size_t size = 0;
    if (!on.limited && get_size(cupti, ATTR_DEVICE_BUFFER_POOL_LIMIT, &on.found_limit) &&
        on.found_limit > pool_limit)
        on.limited = set_size(cupti, ATTR_DEVICE_BUFFER_POOL_LIMIT, pool_limit);
    if (!on.shrunk && get_size(cupti, ATTR_DEVICE_BUFFER_SIZE, &size) &&
        size * pool_limit > DEVICE_MEMORY_BYTES) {
        on.found_size = size;
        on.shrunk = set_size(cupti, ATTR_DEVICE_BUFFER_SIZE, DEVICE_MEMORY_BYTES / pool_limit);
    }
}

/* torch.profiler leaves this off, and then all launching threads share one buffer and its lock. */
static void buffer_each_thread(const struct cupti *cupti)
{
    uint8_t each = 1;
    size_t bytes = sizeof each;
    if (CUPTI_CALL(cupti, get_attribute, ATTR_PER_THREAD_ACTIVITY_BUFFER, &bytes, &each) != CUPTI_OK ||
        each != 0)
        return;
    each = 1;
    bytes = sizeof each;
    CUPTI_CALL(cupti, set_attribute, ATTR_PER_THREAD_ACTIVITY_BUFFER, &bytes, &each);
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

static int enable_kind(const struct cupti *cupti, uint32_t kind)
{
    int code = CUPTI_CALL(cupti, enable, kind);
    if (code == CUPTI_OK)
        on.kinds |= UINT64_C(1) << kind;
    return code;
}

/* The ids of one API that are wanted. */
static void wanted_ids(bool driver, uint32_t want, uint32_t version, bool ids[CALL_IDS])
{
    memset(ids, 0, CALL_IDS * sizeof ids[0]);
    for (size_t i = 0; i < CALL_COUNT; i++) {
        const struct call *call = &CALLS[i];
        if (call->driver == driver && want & call->want && call->since <= version)
            ids[call->cbid] = true;
    }
}

/* Rows of the wanted calls: the whole kind, less every other id. Enabling ids one by one is
 * documented too, and answers "success", but CUPTI 13.0.85 then delivers no row at all while each
 * launch pays for it (measured on an H200; benchmarks/lab). About 0.4 ms an API. */
static void enable_calls(const struct cupti *cupti, bool driver, uint32_t want)
{
    uint32_t kind = driver ? KIND_DRIVER : KIND_RUNTIME;
    int (*set)(uint32_t, uint8_t) = driver ? cupti->enable_driver : cupti->enable_runtime;
    static bool ids[CALL_IDS];
    wanted_ids(driver, want, cupti->version, ids);
    if (enable_kind(cupti, kind) != CUPTI_OK)
        return;
    uint32_t silenced = 0;
    for (uint32_t id = 1, refused = 0; id < CALL_IDS && refused < REFUSED_IN_A_ROW; id++) {
        if (ids[id])
            continue;
        if (!cupti_enter())
            return;
        /* Past the last id of this version every answer is an error, which is no fault. */
        refused = set(id, 0) == CUPTI_OK ? 0 : refused + 1;
        silenced += refused == 0;
        cupti_leave(CUPTI_OK, "");
    }
    /* A row for every call would cost each launch far more than they tell. */
    if (silenced == 0 && CUPTI_CALL(cupti, disable, kind) == CUPTI_OK)
        on.kinds &= ~(UINT64_C(1) << kind);
}

bool switch_takes(uint32_t kind) { return on.kinds & UINT64_C(1) << kind; }

bool switch_driver(const struct cupti *cupti, uint32_t want, bool take)
{
    if (take && cupti->enable_driver != NULL)
        enable_calls(cupti, true, want);
    else if (!take && CUPTI_CALL(cupti, disable, KIND_DRIVER) == CUPTI_OK)
        on.kinds &= ~(UINT64_C(1) << KIND_DRIVER);
    return switch_takes(KIND_DRIVER);
}

bool switch_on(const struct cupti *cupti, const struct switches *what, int *code)
{
    uint32_t want = what->want;
    limit_device_memory(cupti, what->pool_limit);
    buffer_each_thread(cupti);
    right_clock(cupti);
    *code = CUPTI_OK;
    if (!on.registered) {
        *code = CUPTI_CALL(cupti, register_callbacks, pool_request, pool_complete);
        on.registered = *code == CUPTI_OK;
    }
    if (*code == CUPTI_OK && want & WANT_KERNELS)
        *code = enable_kind(cupti, KIND_CONCURRENT_KERNEL);
    if (*code == CUPTI_OK && want & WANT_COPIES)
        *code = enable_kind(cupti, KIND_MEMCPY);
    if (*code == CUPTI_OK && want & WANT_COPIES)
        *code = enable_kind(cupti, KIND_MEMSET);
    if (*code != CUPTI_OK) {
        switch_off(cupti);
        switch_restore(cupti);
        return false;
    }
    if (want & WANT_CALLS && cupti->enable_runtime != NULL && cupti->enable_driver != NULL) {
        if (what->runtime)
            enable_calls(cupti, false, want);
        if (what->driver)
            enable_calls(cupti, true, want);
    }
    return true;
}

void switch_off(const struct cupti *cupti)
{
    /* Calls first: a kernel without its launch is no sign of a loss, the reverse is. */
    static const uint32_t CALL_KINDS[] = {KIND_DRIVER, KIND_RUNTIME};
    for (size_t i = 0; i < 2; i++)
        if (on.kinds & UINT64_C(1) << CALL_KINDS[i]) {
            CUPTI_CALL(cupti, disable, CALL_KINDS[i]);
            on.kinds &= ~(UINT64_C(1) << CALL_KINDS[i]);
        }
    for (uint32_t kind = 0; kind < KIND_LIMIT; kind++)
        if (on.kinds & UINT64_C(1) << kind)
            CUPTI_CALL(cupti, disable, kind);
    on.kinds = 0;
}

bool switch_changed(void) { return on.limited || on.shrunk; }

void switch_restore(const struct cupti *cupti)
{
    if (on.limited)
        set_size(cupti, ATTR_DEVICE_BUFFER_POOL_LIMIT, on.found_limit);
    if (on.shrunk)
        set_size(cupti, ATTR_DEVICE_BUFFER_SIZE, on.found_size);
    on.limited = on.shrunk = false;
}

void switch_forget(void) { on.registered = false; }

void switch_forked(void)
{
    on.registered = on.limited = on.shrunk = false;
    on.kinds = 0;
}

bool switch_finalize(const struct cupti *cupti)
{
    if (on.kinds != 0)
        return false;
    switch_restore(cupti);
    if (CUPTI_CALL(cupti, finalize) != CUPTI_OK)
        return false;
    on.registered = false;
    return true;
}
