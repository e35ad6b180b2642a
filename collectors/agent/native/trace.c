#include "trace_own.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent.h"
#include "apis.h"
#include "brrrtop_agent.h"
#include "clock.h"
#include "lanes.h"
#include "names.h"
#include "observe.h"
#include "pool.h"
#include "report.h"
#include "server.h"
#include "switch.h"
#include "takeout.h"
#include "walk.h"
#include "wire.h"

#define SILENT_AFTER_NS (3 * NS_PER_S)
#define SILENT_BURSTS 2
#define ZERO_IN_GRAPHS 100
#define LONGEST_BURST_NS (60 * NS_PER_S)
#define USUAL_BURST_NS (2 * NS_PER_S)
#define CLOCK_ERROR_NS (120 * NS_PER_S)
#define LEAVE_MS 300
#define NEVER INT64_MAX

struct trace_own own;

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

static uint32_t silent_bursts;
static uint64_t bursts, dropped;

static _Atomic uint64_t step_count, step_target = UINT64_MAX;

enum trace_state trace_state(void) { return own.state; }
const char *trace_says(void) { return own.says; }
bool trace_continuous(void) { return wanted.continuous; }
uint64_t trace_bursts(void) { return bursts; }
uint64_t trace_dropped(void) { return dropped; }
const struct cupti *trace_cupti(void) { return own.found ? &own.cupti : NULL; }
bool trace_has_calls(void) { return own.found && own.cupti.enable_runtime && own.cupti.enable_driver; }

void trace_init(const struct trace_options *given)
{
    own.options = *given;
    /* A second start in one process finds CUPTI anew, but what it refused for good stays refused. */
    if (own.state != TRACE_OFF || !own.found) {
        own.state = TRACE_WAITING;
        snprintf(own.says, sizeof own.says, "waiting for the trainer to touch its GPU");
    }
    wanted.continuous = wanted.burst = false;
    wanted.kinds = WANT_DEFAULT;
    own.look_ns = 0;
    own.blocked_times = silent_bursts = 0;
    apis_forget();
}

static bool asked_for_buffers(void)
{
    struct pool_counts pool;
    pool_count(&pool);
    return pool.requests != run.requests;
}

static bool silent(void) { return !asked_for_buffers() && atomic_load(&step_count) > run.steps; }

static void begin(int64_t now_ns)
{
    int code;
    struct pool_counts pool;
    pool_warm(4);
    names_find_demangler();
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
    bool driver = apis_begin(wanted.kinds);
    if (!switch_on(&own.cupti, wanted.kinds, driver, own.options.pool_limit, &code)) {
        wanted.burst = false;
        trace_refused(code);
        return;
    }
    agent_guard_exit();
    apis_began(now_ns);
    run.began_ns = now_ns;
    run.flush_ns = now_ns + own.options.flush_ms * NS_PER_MS;
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
    trace_enter(TRACE_TRACING, run.burst ? "tracing a burst" : "tracing continuously");
}

/* Everything launched before the returned REALTIME instant has arrived. */
static int64_t flush(void)
{
    int64_t before_ns = real_ns();
    CUPTI_CALL(&own.cupti, flush, 0);
    int64_t lent_ns = pool_lent_since_ns();
    trace_pump();
    return lent_ns < before_ns ? lent_ns : before_ns;
}

void trace_pump(void)
{
    const uint8_t *buffer;
    size_t valid;
    int slot;
    if (!own.found)
        return;
    walk_bounds(run.began_ns ? real_ns() - LONGEST_BURST_NS - CLOCK_ERROR_NS : 0,
                real_ns() + CLOCK_ERROR_NS);
    while ((slot = pool_take(&buffer, &valid)) >= 0) {
        if (server_clients() != 0 || own.state == TRACE_DRAINING)
            walk_buffer(&own.cupti.strides, buffer, valid);
        pool_recycle(slot);
    }
}

static void ask_dropped(void)
{
    size_t count = 0;
    if (CUPTI_CALL(&own.cupti, dropped, NULL, 0, &count) == CUPTI_OK && count != 0) {
        dropped += count;
        observe_taint();
    }
}

static bool whole(int64_t launched_ns)
{
    return launched_ns >= run.stopped_real_ns && walk_arrived(&run.walked, graphs_possible());
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
        own.blocked_times = 0;
    if (complete && asked_for_buffers()) /* else the callbacks may be somebody else's */
        takeout(&own.cupti);
    report_traced(walked.kernels - run.walked.kernels, run.stopped_steps - run.steps, complete,
                  apis_ended());
    agent_raise(BRRR_EV_TRACED);
    if (silent_bursts >= SILENT_BURSTS) {
        silent_bursts = 0;
        trace_block("no records arrive: another profiler owns the callbacks");
        return;
    }
    trace_enter(TRACE_READY, "kernel tracing is ready");
}

static void end(int64_t now_ns)
{
    atomic_store(&step_target, UINT64_MAX);
    run.stopped_real_ns = real_ns();
    run.stopped_steps = atomic_load(&step_count);
    int64_t launched_ns = flush();
    switch_off(&own.cupti);
    own.state = TRACE_DRAINING;
    run.drain_end_ns = now_ns + own.options.drain_ms * NS_PER_MS;
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
        trace_enter(TRACE_OFF, "CUPTI loses timestamps inside CUDA graphs (its device buffers are full): kernel "
                         "tracing is off for the rest of this run");
        return;
    }
    if (!(wanted.kinds & WANT_GRAPHS) && walked.graph_kernels + walked.graph_launches != 0) {
        takeout_graphs(true);
        end(now_ns);
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
        trace_block("no records arrive: another profiler owns the callbacks");
        return;
    }
    if (now_ns >= run.flush_ns) {
        int64_t launched_ns = flush();
        ask_dropped();
        lanes_flush();
        observe_advance(launched_ns);
        if (!run.burst)
            apis_watch(&own.cupti, now_ns);
        run.flush_ns = mono_ns() + own.options.flush_ms * NS_PER_MS;
    }
}

int64_t trace_tick(int64_t now_ns)
{
    if (server_clients() == 0)
        return NEVER;
    if ((own.state == TRACE_WAITING || own.state == TRACE_ABSENT) && now_ns >= own.look_ns)
        trace_look(now_ns);
    if (own.state == TRACE_BLOCKED && now_ns >= own.retry_ns)
        trace_enter(TRACE_READY, "kernel tracing is ready to try again");
    if (own.state == TRACE_READY && (wanted.burst || wanted.continuous)) {
        if (!trace_held_back(wanted.kinds))
            begin(now_ns);
        else if (own.held_back)
            wanted.burst = false;
    }
    else if (own.state == TRACE_TRACING)
        watch(now_ns);
    if (own.state == TRACE_DRAINING && now_ns >= run.drain_ns)
        drain(now_ns);
    switch (own.state) {
    case TRACE_WAITING:
    case TRACE_ABSENT:
        return own.look_ns;
    case TRACE_BLOCKED:
        return own.retry_ns;
    case TRACE_TRACING:
        return run.flush_ns < run.deadline_ns ? run.flush_ns : run.deadline_ns;
    case TRACE_DRAINING:
        return run.drain_ns;
    case TRACE_READY: /* held back, or done already: brrr_graphs wakes */
        return (wanted.burst || wanted.continuous) && graphs_ruled_out() ? now_ns : NEVER;
    default:
        return NEVER;
    }
}

void trace_want(bool continuous, uint32_t kinds)
{
    wanted.continuous = continuous;
    wanted.kinds = kinds;
    if (own.held_back && own.state == TRACE_BLOCKED && kinds & WANT_GRAPHS) {
        own.held_back = false;
        trace_enter(TRACE_READY, "kernel tracing is ready, beside CUDA graphs at the user's risk");
    }
}

void trace_burst(int64_t steps, int64_t longest_ns)
{
    if (own.state == TRACE_TRACING && !run.burst)
        return; /* continuous tracing holds every burst */
    if (longest_ns <= 0)
        longest_ns = USUAL_BURST_NS;
    wanted.steps = steps > 0 ? steps : 0;
    wanted.longest_ns = longest_ns < LONGEST_BURST_NS ? longest_ns : LONGEST_BURST_NS;
    wanted.burst = true;
    if (own.state != TRACE_READY && own.state != TRACE_TRACING && own.state != TRACE_DRAINING)
        report_status();
}

void trace_burst_end(void)
{
    wanted.burst = false;
    if (own.state == TRACE_TRACING && run.burst)
        run.deadline_ns = mono_ns();
}

static void leave(bool flushed)
{
    atomic_store(&step_target, UINT64_MAX);
    wanted.burst = false;
    if (!own.found)
        return;
    if (own.state == TRACE_TRACING && flushed)
        end(mono_ns());
    /* What was launched under tracing must be over before CUPTI can be taken out: waited for, a little. */
    int64_t until = mono_ns() + LEAVE_MS * NS_PER_MS;
    while (own.state == TRACE_DRAINING && mono_ns() < until && !agent_exiting() && graphs_ruled_out()) {
        drain(run.drain_ns = mono_ns());
        if (own.state == TRACE_DRAINING)
            nanosleep(&(struct timespec){0, 10 * NS_PER_MS}, NULL);
    }
    if (own.state == TRACE_DRAINING)
        drain(run.drain_ns = run.drain_end_ns = mono_ns());
    switch_off(&own.cupti);
    switch_restore(&own.cupti);
    if (own.state == TRACE_TRACING) {
        CUPTI_CALL(&own.cupti, flush, 0);
        trace_pump();
        agent_raise(BRRR_EV_TRACED);
        trace_enter(TRACE_READY, "kernel tracing is ready");
    }
    pool_trim();
}

void trace_retract(void)
{
    wanted.continuous = false;
    leave(true);
}

void trace_detach(void)
{
    wanted.continuous = false;
    leave(true);
    pool_attended(false);
}

void trace_yield(const char *who)
{
    takeout_never(); /* as Kineto does */
    leave(true);
    switch_forget();
    if (own.state == TRACE_OFF)
        return;
    char text[256];
    snprintf(text, sizeof text, "%.120s is recording: kernel tracing waits", who);
    trace_enter(TRACE_YIELDED, text);
}

void trace_step(uint64_t count)
{
    atomic_store_explicit(&step_count, count, memory_order_relaxed);
    if (count == atomic_load_explicit(&step_target, memory_order_relaxed))
        agent_wake();
}

void trace_forked(void)
{
    own.state = TRACE_WAITING;
    own.found = false;
    atomic_store(&step_target, UINT64_MAX);
    atomic_store(&step_count, 0);
    memset(&run, 0, sizeof run);
    wanted.continuous = wanted.burst = false;
    apis_forget();
}
