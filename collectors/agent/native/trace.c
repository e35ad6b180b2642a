#include "trace.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"
#include "brrrtop_agent.h"
#include "clock.h"
#include "lanes.h"
#include "observe.h"
#include "pool.h"
#include "report.h"
#include "server.h"
#include "switch.h"
#include "walk.h"
#include "wire.h"

#define LOOK_EVERY_NS (500 * NS_PER_MS)
#define SILENT_AFTER_NS (3 * NS_PER_S)
#define SILENT_BURSTS 2
#define ZERO_IN_GRAPHS 100
#define LONGEST_BURST_NS (60 * NS_PER_S)
#define USUAL_BURST_NS (2 * NS_PER_S)
#define CLOCK_ERROR_NS (120 * NS_PER_S)
#define NEVER INT64_MAX

static struct trace_options options;
static struct cupti cupti;
static enum trace_state state;
static char says[768];
static bool found;

static struct {
    bool continuous;
    uint32_t kinds;
    bool burst;              /* asked for, and not begun */
    int64_t steps, longest_ns;
} wanted = {.kinds = WANT_DEFAULT};

static struct {
    bool burst;              /* a burst rather than continuous tracing */
    uint32_t kinds;
    int64_t began_ns;        /* monotonic, as the next four */
    int64_t deadline_ns, flush_ns, drain_end_ns, drain_ns;
    int64_t stopped_real_ns;
    uint64_t steps, requests; /* counters when it began */
    uint64_t stopped_steps;
    struct walk_counts walked;
    uint64_t lost;
    uint32_t drain_wait_ms;
} run;

static int64_t look_ns, retry_ns;
static uint32_t blocked_times, silent_bursts;
static uint64_t bursts, dropped;

static _Atomic uint64_t step_count, step_target = UINT64_MAX;

enum trace_state trace_state(void) { return state; }
const char *trace_says(void) { return says; }
bool trace_continuous(void) { return wanted.continuous; }
uint64_t trace_bursts(void) { return bursts; }
uint64_t trace_dropped(void) { return dropped; }
const struct cupti *trace_cupti(void) { return found ? &cupti : NULL; }
bool trace_has_calls(void) { return found && cupti.enable_runtime && cupti.enable_driver; }

const char *trace_state_name(enum trace_state which)
{
    static const char *const NAMES[] = {"waiting", "absent",  "ready",   "tracing",
                                        "tracing", "yielded", "blocked", "off"};
    return NAMES[which];
}

void trace_init(const struct trace_options *given)
{
    options = *given;
    /* A second start in one process finds CUPTI anew, but what it refused for good stays refused. */
    if (state != TRACE_OFF || !found) {
        state = TRACE_WAITING;
        snprintf(says, sizeof says, "waiting for the trainer to touch its GPU");
    }
    wanted.continuous = wanted.burst = false;
    wanted.kinds = WANT_DEFAULT;
    look_ns = 0;
    blocked_times = silent_bursts = 0;
}

static void enter(enum trace_state next, const char *sentence)
{
    bool same = state == next && strcmp(says, sentence) == 0;
    state = next;
    if (sentence != says)
        snprintf(says, sizeof says, "%s", sentence);
    if (!same)
        report_status();
}

static void look(int64_t now_ns)
{
    char sentence[768] = "";
    look_ns = now_ns + LOOK_EVERY_NS;
    switch (cupti_find(&cupti, options.need_context, sentence, sizeof sentence)) {
    case FOUND:
        found = true;
        pool_allow_null(cupti.version >= 27);
        if (trace_has_calls())
            snprintf(sentence, sizeof sentence, "kernel tracing is ready");
        else
            snprintf(sentence, sizeof sentence,
                     "kernel tracing is ready, without launch and sync calls: CUPTI older than 12.6");
        enter(TRACE_READY, sentence);
        report_hello_again();
        return;
    case FIND_NO_CUDA:
        enter(TRACE_WAITING, sentence);
        return;
    case FIND_NO_CUPTI:
        enter(TRACE_ABSENT, sentence);
        look_ns = now_ns + 4 * LOOK_EVERY_NS;
        return;
    case FIND_REFUSED:
        enter(TRACE_OFF, sentence);
    }
}

static void block(const char *sentence)
{
    static const int PAUSES_S[] = {10, 30, 60};
    uint32_t step = blocked_times < 2 ? blocked_times : 2;
    blocked_times++;
    retry_ns = mono_ns() + PAUSES_S[step] * NS_PER_S;
    switch_forget();
    char text[768];
    snprintf(text, sizeof text, "%.600s; next try in %d s", sentence, PAUSES_S[step]);
    enter(TRACE_BLOCKED, text);
}

static void refused(int code)
{
    char fault[160], text[512];
    cupti_last_fault(&cupti, fault, sizeof fault);
    if (code == CUPTI_GONE)
        return;
    if (code == CUPTI_MULTIPLE_SUBSCRIBERS || code == CUPTI_NOT_COMPATIBLE ||
        code == CUPTI_HARDWARE_BUSY) {
        snprintf(text, sizeof text, "another profiler holds CUPTI (%s)", fault);
        block(text);
    } else if (code == CUPTI_INSUFFICIENT_PRIVILEGES || code == CUPTI_NOT_SUPPORTED ||
               (code >= 40 && code <= 47)) {
        snprintf(text, sizeof text, "kernel tracing is not permitted or not supported here (%s)", fault);
        enter(TRACE_OFF, text);
    } else {
        snprintf(text, sizeof text, "CUPTI failed (%s)", fault);
        block(text);
    }
}

static bool silent(void)
{
    struct pool_counts pool;
    pool_count(&pool);
    return pool.requests == run.requests && atomic_load(&step_count) > run.steps;
}

static void begin(int64_t now_ns)
{
    int code;
    struct pool_counts pool;
    pool_warm(4);
    pool_attended(true);
    trace_pump();
    pool_count(&pool);
    memset(&run, 0, sizeof run);
    run.requests = pool.requests;
    run.walked = walked;
    run.burst = wanted.burst;
    run.kinds = wanted.kinds;
    walk_forget_names();
    observe_begin(real_ns());
    walk_bounds(real_ns() - CLOCK_ERROR_NS, NEVER);
    if (!switch_on(&cupti, wanted.kinds, options.pool_limit, &code)) {
        wanted.burst = false;
        refused(code);
        return;
    }
    run.began_ns = now_ns;
    run.flush_ns = now_ns + options.flush_ms * NS_PER_MS;
    run.steps = atomic_load(&step_count);
    run.deadline_ns = NEVER;
    if (run.burst) {
        run.deadline_ns = now_ns + wanted.longest_ns;
        /* The first mark begins the first whole step. */
        if (wanted.steps > 0)
            atomic_store(&step_target, run.steps + 1 + (uint64_t)wanted.steps);
        wanted.burst = false;
    }
    agent_raise(BRRR_EV_TRACING);
    enter(TRACE_TRACING, run.burst ? "tracing a burst" : "tracing continuously");
}

/* Everything launched before the returned REALTIME instant has arrived. */
static int64_t flush(void)
{
    int64_t before_ns = real_ns();
    CUPTI_CALL(&cupti, flush, 0);
    int64_t lent_ns = pool_lent_since_ns();
    trace_pump();
    return lent_ns < before_ns ? lent_ns : before_ns;
}

void trace_pump(void)
{
    const uint8_t *buffer;
    size_t valid;
    int slot;
    if (!found)
        return;
    walk_bounds(run.began_ns ? real_ns() - LONGEST_BURST_NS - CLOCK_ERROR_NS : 0,
                real_ns() + CLOCK_ERROR_NS);
    while ((slot = pool_take(&buffer, &valid)) >= 0) {
        if (server_clients() != 0)
            walk_buffer(&cupti.strides, buffer, valid);
        pool_recycle(slot);
    }
}

static void ask_dropped(void)
{
    size_t count = 0;
    if (CUPTI_CALL(&cupti, dropped, NULL, 0, &count) == CUPTI_OK && count != 0) {
        dropped += count;
        observe_taint();
    }
}

static bool whole(int64_t launched_ns)
{
    uint64_t launches = walked.launches - run.walked.launches;
    uint64_t kernels = walked.launched_kernels - run.walked.launched_kernels;
    return launched_ns >= run.stopped_real_ns && kernels >= launches;
}

static void finish(bool complete)
{
    if (pool_lent_since_ns() < run.stopped_real_ns)
        observe_taint();
    ask_dropped();
    lanes_flush();
    observe_end(run.stopped_real_ns, complete);
    bursts++;
    if (silent())
        silent_bursts++;
    else
        silent_bursts = 0;
    if (observe_records() != 0)
        blocked_times = 0;
    report_traced(walked.kernels - run.walked.kernels, run.stopped_steps - run.steps, complete);
    agent_raise(BRRR_EV_TRACED);
    if (silent_bursts >= SILENT_BURSTS) {
        silent_bursts = 0;
        block("no records arrive: another profiler owns the callbacks");
        return;
    }
    enter(TRACE_READY, "kernel tracing is ready");
}

static void end(int64_t now_ns)
{
    atomic_store(&step_target, UINT64_MAX);
    run.stopped_real_ns = real_ns();
    run.stopped_steps = atomic_load(&step_count);
    int64_t launched_ns = flush();
    switch_off(&cupti);
    state = TRACE_DRAINING;
    run.drain_end_ns = now_ns + options.drain_ms * NS_PER_MS;
    run.drain_wait_ms = 10;
    run.drain_ns = now_ns;
    if (launched_ns >= run.stopped_real_ns && walked.kernels == run.walked.kernels)
        run.drain_end_ns = now_ns; /* nothing was seen, so nothing is on its way */
}

static void drain(int64_t now_ns)
{
    bool complete = whole(flush());
    if (complete || mono_ns() >= run.drain_end_ns) {
        finish(complete);
        return;
    }
    run.drain_ns = now_ns + run.drain_wait_ms * NS_PER_MS;
    run.drain_wait_ms = run.drain_wait_ms < 80 ? run.drain_wait_ms * 2 : 80;
}

static void watch(int64_t now_ns)
{
    if (walked.zero_in_graphs >= ZERO_IN_GRAPHS) {
        end(now_ns);
        finish(false);
        enter(TRACE_OFF, "CUPTI loses timestamps inside CUDA graphs (its device buffers are full): kernel "
                         "tracing is off for the rest of this run");
        return;
    }
    if (pool_pressed()) {
        observe_taint();
        end(now_ns);
        return;
    }
    bool over = run.burst ? now_ns >= run.deadline_ns || atomic_load(&step_count) >= atomic_load(&step_target)
                          : !wanted.continuous;
    if (over || run.kinds != wanted.kinds) {
        end(now_ns);
        return;
    }
    if (now_ns - run.began_ns >= SILENT_AFTER_NS && silent()) {
        end(now_ns);
        finish(false);
        block("no records arrive: another profiler owns the callbacks");
        return;
    }
    if (now_ns >= run.flush_ns) {
        int64_t launched_ns = flush();
        ask_dropped();
        lanes_flush();
        observe_advance(launched_ns);
        run.flush_ns = mono_ns() + options.flush_ms * NS_PER_MS;
    }
}

int64_t trace_tick(int64_t now_ns)
{
    if (server_clients() == 0)
        return NEVER;
    if ((state == TRACE_WAITING || state == TRACE_ABSENT) && now_ns >= look_ns)
        look(now_ns);
    if (state == TRACE_BLOCKED && now_ns >= retry_ns)
        enter(TRACE_READY, "kernel tracing is ready to try again");
    if (state == TRACE_READY && (wanted.burst || wanted.continuous))
        begin(now_ns);
    else if (state == TRACE_TRACING)
        watch(now_ns);
    if (state == TRACE_DRAINING && now_ns >= run.drain_ns)
        drain(now_ns);
    switch (state) {
    case TRACE_WAITING:
    case TRACE_ABSENT:
        return look_ns;
    case TRACE_BLOCKED:
        return retry_ns;
    case TRACE_TRACING:
        return run.flush_ns < run.deadline_ns ? run.flush_ns : run.deadline_ns;
    case TRACE_DRAINING:
        return run.drain_ns;
    case TRACE_READY:
        return wanted.burst || wanted.continuous ? now_ns : NEVER;
    default:
        return NEVER;
    }
}

void trace_want(bool continuous, uint32_t kinds)
{
    wanted.continuous = continuous;
    wanted.kinds = kinds;
}

void trace_burst(int64_t steps, int64_t longest_ns)
{
    if (state == TRACE_TRACING && !run.burst)
        return; /* continuous tracing holds every burst */
    if (longest_ns <= 0)
        longest_ns = USUAL_BURST_NS;
    wanted.steps = steps > 0 ? steps : 0;
    wanted.longest_ns = longest_ns < LONGEST_BURST_NS ? longest_ns : LONGEST_BURST_NS;
    wanted.burst = true;
    if (state != TRACE_READY && state != TRACE_TRACING && state != TRACE_DRAINING)
        report_status();
}

void trace_burst_end(void)
{
    wanted.burst = false;
    if (state == TRACE_TRACING && run.burst)
        run.deadline_ns = mono_ns();
}

static void leave(bool flushed)
{
    atomic_store(&step_target, UINT64_MAX);
    wanted.burst = false;
    if (!found)
        return;
    if (state == TRACE_TRACING && flushed)
        end(mono_ns());
    if (state == TRACE_DRAINING)
        drain(run.drain_ns = run.drain_end_ns = mono_ns());
    switch_off(&cupti);
    switch_restore(&cupti);
    if (state == TRACE_TRACING) {
        CUPTI_CALL(&cupti, flush, 0);
        trace_pump();
        agent_raise(BRRR_EV_TRACED);
        enter(TRACE_READY, "kernel tracing is ready");
    }
    pool_trim();
}

void trace_retract(void)
{
    wanted.continuous = false;
    leave(false);
}

void trace_detach(void)
{
    wanted.continuous = false;
    leave(true);
    pool_attended(false);
}

void trace_yield(const char *who)
{
    leave(true);
    switch_forget();
    if (state == TRACE_OFF)
        return;
    char text[256];
    snprintf(text, sizeof text, "%.120s is recording: kernel tracing waits", who);
    enter(TRACE_YIELDED, text);
}

void trace_resume(void)
{
    if (state == TRACE_YIELDED) {
        look_ns = 0;
        enter(found ? TRACE_READY : TRACE_WAITING,
              found ? "kernel tracing is ready" : "waiting for the trainer to touch its GPU");
    }
}

void trace_step(uint64_t count)
{
    atomic_store_explicit(&step_count, count, memory_order_relaxed);
    if (count == atomic_load_explicit(&step_target, memory_order_relaxed))
        agent_wake();
}

void trace_forked(void)
{
    state = TRACE_WAITING;
    found = false;
    atomic_store(&step_target, UINT64_MAX);
    atomic_store(&step_count, 0);
    memset(&run, 0, sizeof run);
    wanted.continuous = wanted.burst = false;
}
