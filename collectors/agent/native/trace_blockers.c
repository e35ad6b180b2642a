#include "trace_own.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "pool.h"
#include "report.h"
#include "safepoint.h"
#include "switch.h"
#include "finalize.h"
#include "wire.h"

#define LOOK_EVERY_NS (500 * NS_PER_MS)

void trace_enter(enum trace_state next, enum status_code code, const char *sentence)
{
    bool same = own.state == next && strcmp(own.says, sentence) == 0;
    own.state = next;
    own.code = code;
    if (sentence != own.says)
        snprintf(own.says, sizeof own.says, "%s", sentence);
    if (!same)
        report_status();
}

const char *trace_state_name(enum trace_state which)
{
    static const char *const NAMES[] = {"waiting", "absent",  "ready",   "tracing",
                                        "tracing", "yielded", "blocked", "off"};
    return NAMES[which];
}

bool trace_may_hold(uint32_t kinds)
{
    return kinds & WANT_GRAPHS || (kinds & WANT_HOLDS && !graphs_told() && !torch_is_mapped());
}

/* In a trainer without torch nobody tells which threads launch, and when none does: all of it is held
 * for the switch then. A torch that has not spoken yet may be about to. */
bool trace_held_back(uint32_t kinds)
{
    if (graphs_told() || trace_may_hold(kinds))
        return false;
    trace_enter(TRACE_READY, CODE_GRAPHS_UNKNOWN,
                torch_is_mapped() ? "kernel tracing waits to hear whether the trainer has CUDA graphs; "
                                    "only torch can tell (--trace-graphs takes the risk: all its "
                                    "threads are held outside CUDA for some ms at each switch)"
                                  : "kernels of a program without torch are left out (--no-trace-graphs): all "
                                    "its threads would be held outside CUDA at each switch");
    return true;
}

void trace_look(int64_t now_ns)
{
    struct find_fault fault = {CODE_CUPTI_UNUSABLE, ""};
    own.look_ns = now_ns + LOOK_EVERY_NS;
    own.found = false;
    const char *file = wanted.kinds & (WANT_GRAPHS | WANT_HOLDS) ? own.options.cupti : NULL;
    switch (cupti_find(&own.cupti, own.options.need_context, file, &fault)) {
    case FOUND:
        own.found = true;
        pool_allow_null(own.cupti.version >= 27);
        report_hello_again();
        if (trace_has_calls())
            trace_enter(TRACE_READY, CODE_READY, "kernel tracing is ready");
        else
            trace_enter(TRACE_READY, CODE_NO_CALLS,
                        "kernel tracing is ready, without launch and sync calls: CUPTI older than 12.6");
        return;
    case FIND_NO_CUDA:
        trace_enter(TRACE_WAITING, fault.code, fault.says);
        return;
    case FIND_NO_CUPTI:
        trace_enter(TRACE_ABSENT, fault.code, fault.says);
        own.look_ns = now_ns + 4 * LOOK_EVERY_NS;
        return;
    case FIND_REFUSED:
        trace_enter(TRACE_OFF, fault.code, fault.says);
    }
}

void trace_block(enum status_code code, const char *sentence)
{
    static const int PAUSES_S[] = {10, 30, 60};
    uint32_t step = own.blocked_times < 2 ? own.blocked_times : 2;
    own.blocked_times++;
    own.retry_ns = mono_ns() + PAUSES_S[step] * NS_PER_S;
    switch_forget();
    char text[768];
    snprintf(text, sizeof text, "%.600s; next try in %d s", sentence, PAUSES_S[step]);
    trace_enter(TRACE_BLOCKED, code, text);
}

void trace_refused(int code)
{
    char fault[160], text[512];
    cupti_last_fault(&own.cupti, fault, sizeof fault);
    if (code == CUPTI_MULTIPLE_SUBSCRIBERS || code == CUPTI_NOT_COMPATIBLE ||
        code == CUPTI_HARDWARE_BUSY) {
        snprintf(text, sizeof text, "another profiler holds CUPTI (%s)", fault);
        trace_block(CODE_CUPTI_TAKEN, text);
    } else if (code == CUPTI_INSUFFICIENT_PRIVILEGES || code == CUPTI_NOT_SUPPORTED ||
               (code >= 40 && code <= 47)) {
        snprintf(text, sizeof text, "kernel tracing is not permitted or not supported here (%s)", fault);
        trace_enter(TRACE_OFF, CODE_NOT_PERMITTED, text);
    } else {
        snprintf(text, sizeof text, "CUPTI failed (%s)", fault);
        trace_block(CODE_CUPTI_FAILED, text);
    }
}

void trace_resume(void)
{
    if (own.state != TRACE_YIELDED)
        return;
    own.look_ns = 0;
    if (own.found)
        trace_enter(TRACE_READY, CODE_READY, "kernel tracing is ready");
    else
        trace_enter(TRACE_WAITING, CODE_GPU_UNTOUCHED, "waiting for the trainer to touch its GPU");
}

void trace_missed(void)
{
    wanted.burst = false;
    own.says[0] = '\0';
    if (safepoint_world_says() != NULL) {
        char text[320];
        snprintf(text, sizeof text, "kernel tracing begins while no thread of the trainer is inside CUDA, and %s",
                 safepoint_world_says());
        trace_enter(TRACE_READY, CODE_NO_PAUSE, text);
        return;
    }
    trace_enter(TRACE_READY, CODE_NO_STEP,
                "kernel tracing begins between two training steps, and none has ended for a while");
}
