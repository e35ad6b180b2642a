#include "switch.h"

#include <stdlib.h>

#include "calls.h"
#include "clock.h"
#include "pool.h"
#include "wire.h"

#define DEVICE_MEMORY_BYTES (64u << 20)
#define CLOCK_SLACK_NS (50 * NS_PER_MS)

static struct {
    bool registered;
    uint64_t kinds;          /* ours, by bit */
    bool runtime[CALL_IDS], driver[CALL_IDS];
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

static void enable_calls(const struct cupti *cupti, uint32_t want)
{
    for (size_t i = 0; i < CALL_COUNT; i++) {
        const struct call *call = &CALLS[i];
        if (!(want & call->want) || call->since > cupti->version)
            continue;
        int code = call->driver ? CUPTI_CALL(cupti, enable_driver, call->cbid, 1)
                                : CUPTI_CALL(cupti, enable_runtime, call->cbid, 1);
        if (code == CUPTI_OK)
            (call->driver ? on.driver : on.runtime)[call->cbid] = true;
    }
}

bool switch_on(const struct cupti *cupti, uint32_t want, uint32_t pool_limit, int *code)
{
    limit_device_memory(cupti, pool_limit);
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
    if (cupti->enable_runtime != NULL && cupti->enable_driver != NULL)
        enable_calls(cupti, want);
    return true;
}

void switch_off(const struct cupti *cupti)
{
    /* Calls first: a kernel without its launch is no sign of a loss, the reverse is. */
    for (size_t i = 0; i < CALL_COUNT; i++) {
        const struct call *call = &CALLS[i];
        bool *ours = &(call->driver ? on.driver : on.runtime)[call->cbid];
        if (*ours && call->driver)
            CUPTI_CALL(cupti, enable_driver, call->cbid, 0);
        else if (*ours)
            CUPTI_CALL(cupti, enable_runtime, call->cbid, 0);
        *ours = false;
    }
    for (uint32_t kind = 0; kind < KIND_LIMIT; kind++)
        if (on.kinds & UINT64_C(1) << kind)
            CUPTI_CALL(cupti, disable, kind);
    on.kinds = 0;
}

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
    for (size_t i = 0; i < CALL_IDS; i++)
        on.runtime[i] = on.driver[i] = false;
}
