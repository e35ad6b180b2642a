#include "trace_own.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent.h"
#include "api_filter.h"
#include "brrrtop_agent.h"
#include "clock.h"
#include "frame_builder.h"
#include "safepoint.h"
#include "names.h"
#include "coverage.h"
#include "pool.h"
#include "report.h"
#include "server.h"
#include "switch.h"
#include "finalize.h"
#include "records.h"
#include "wire.h"

#define SILENT_AFTER_NS (3 * NS_PER_S)
#define SILENT_BURSTS 2
#define ZERO_IN_GRAPHS 100
#define LEAVE_MS 300
#define MEET_MS 1300
#define MEET_AGAIN_MS 250
#define NEVER INT64_MAX

struct trace_own own;

struct trace_wanted wanted = {.kinds = WANT_DEFAULT};
struct trace_run run;

static uint32_t silent_bursts;
static uint64_t bursts;

static _Atomic uint64_t step_count, step_target = UINT64_MAX;

enum trace_state trace_state(void) { return own.state; }
enum status_code trace_code(void) { return own.code; }
const char *trace_says(void) { return own.says; }
bool trace_continuous(void) { return wanted.continuous; }
uint64_t trace_bursts(void) { return bursts; }
const struct cupti *trace_cupti(void) { return own.found ? &own.cupti : NULL; }
bool trace_has_calls(void) { return own.found && own.cupti.enable_runtime && own.cupti.enable_driver; }

void trace_init(const struct trace_options *given)
{
    own.options = *given;
    /* A second start in one process finds CUPTI anew, but what it refused for good stays refused. */
    if (own.state != TRACE_OFF || !own.found) {
        own.state = TRACE_WAITING;
        own.code = CODE_GPU_UNTOUCHED;
        snprintf(own.says, sizeof own.says, "waiting for the trainer to touch its GPU");
    }
    wanted.continuous = wanted.burst = false;
    wanted.kinds = WANT_DEFAULT;
    own.look_ns = 0;
    own.asks = own.finalize_due = own.leaving = false;
    own.blocked_times = silent_bursts = 0;
    api_filter_forget();
}

static bool silent(void)
{
    return !trace_was_asked() && records_seen.kernels == run.seen.kernels && atomic_load(&step_count) > run.steps;
}

/* CUPTI asks for no buffer while it holds one with room, and gives none back before all of it is over. */
static void block_silent(void)
{
    int64_t since_ns = pool_lent_since_ns();
    if (since_ns == INT64_MAX) {
        trace_block(CODE_NO_RECORDS, "no records arrive: another profiler owns the callbacks");
        return;
    }
    char text[192];
    snprintf(text, sizeof text,
             "no records arrive: CUPTI has kept a buffer of them for %lld s, as it does while work on the "
             "GPU does not end",
             (long long)((real_ns() - since_ns) / NS_PER_S));
    trace_block(CODE_RECORDS_HELD, text);
}

/* How the trainer is met: what was switched on at a place where nothing of the runtime's API was
 * under way goes off at such a place only, whoever watches by then. Where steps come, one is waited for first. */
static void choose_place(void)
{
    bool may = own.state == TRACE_TRACING ? run.world : trace_may_hold(wanted.kinds) || (run.world && !graphs_told());
    bool hooked = graphs_told() || atomic_load(&step_count) > 0;
    safepoint_world(!may ? WORLD_NEVER : hooked ? WORLD_LAST : WORLD_ONLY);
}

/* What takes time, before the trainer is met. */
static void prepare(void)
{
    cupti_relax_capture();
    pool_warm(4);
    names_find_demangler();
    pool_attended(true);
    trace_pump();
}

/* The trainer is met; it goes on as soon as everything is on. */
static void begin(void)
{
    int code;
    struct pool_counts pool;
    pool_count(&pool);
    memset(&run, 0, sizeof run);
    run.requests = pool.requests;
    run.holds.out_ns = safepoint_longest_ns(); /* of this one is known once it is over */
    run.seen = records_seen;
    run.burst = wanted.burst;
    run.kinds = wanted.kinds;
    records_forget_names();
    coverage_begin(real_ns());
    records_bounds(real_ns() - CLOCK_ERROR_NS, NEVER);
    bool driver = api_filter_begin(wanted.kinds);
    run.world = safepoint_has_world();
    struct switches what = {wanted.kinds, !run.world, driver || run.world, own.options.pool_limit};
    bool on = switch_on(&own.cupti, &what, &code);
    safepoint_over();
    if (!on) {
        wanted.burst = false;
        trace_refused(code);
        return;
    }
    agent_guard_exit();
    int64_t now_ns = mono_ns(); /* the time that it took is none of the burst's */
    api_filter_began(now_ns);
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
    trace_enter(TRACE_TRACING, CODE_TRACING, run.burst ? "tracing a burst" : "tracing continuously");
}

static void finish(bool complete)
{
    if (pool_lent_since_ns() < run.stopped_real_ns)
        coverage_taint();
    trace_ask_dropped();
    frame_builder_flush();
    coverage_end(run.stopped_real_ns, complete);
    bursts++;
    if (silent())
        silent_bursts++;
    else
        silent_bursts = 0;
    if (coverage_records() != 0)
        own.blocked_times = 0;
    own.finalize_due = complete && trace_was_asked(); /* else the callbacks may be somebody else's */
    own.hidden = coverage_dense();
    run.holds.off_ns = safepoint_longest_ns();
    report_traced(&(struct burst){
        .kernels = records_seen.kernels - run.seen.kernels,
        .steps = run.stopped_steps - run.steps,
        .whole = complete,
        .all_threads = run.world,
        .launches = api_filter_ended(),
        .holds = run.holds,
    });
    agent_raise(BRRR_EV_TRACED);
    if (silent_bursts >= SILENT_BURSTS) {
        silent_bursts = 0;
        block_silent();
        return;
    }
    trace_enter(TRACE_READY, CODE_READY, "kernel tracing is ready");
}

/* The trainer is met; it goes on as soon as nothing is on any more. */
static void end(int64_t now_ns)
{
    atomic_store(&step_target, UINT64_MAX);
    run.stopped_real_ns = real_ns();
    run.stopped_steps = atomic_load(&step_count);
    run.holds.on_ns = safepoint_longest_ns();
    switch_off(&own.cupti);
    safepoint_over();
    own.asks = false;
    int64_t launched_ns = trace_flush();
    own.state = TRACE_DRAINING;
    run.drain_end_ns = now_ns + own.options.drain_ms * NS_PER_MS;
    run.drain_wait_ms = 10;
    run.drain_ns = now_ns;
    if (launched_ns >= run.stopped_real_ns && records_seen.kernels == run.seen.kernels)
        run.drain_end_ns = now_ns; /* nothing was seen, so nothing is on its way */
}

static void drain(int64_t now_ns)
{
    bool complete = trace_whole(trace_flush());
    if (complete || mono_ns() >= run.drain_end_ns) {
        finish(complete);
        return;
    }
    run.drain_ns = now_ns + run.drain_wait_ms * NS_PER_MS;
    run.drain_wait_ms = run.drain_wait_ms < 80 ? run.drain_wait_ms * 2 : 80;
}

static void flush_now_and_then(int64_t now_ns)
{
    if (now_ns < run.flush_ns)
        return;
    int64_t launched_ns = trace_flush();
    trace_ask_dropped();
    frame_builder_flush();
    coverage_advance(launched_ns);
    run.flush_ns = mono_ns() + own.options.flush_ms * NS_PER_MS;
}

static void watch(int64_t now_ns)
{
    bool zeros = records_seen.zero_in_graphs >= ZERO_IN_GRAPHS;
    bool deaf = now_ns - run.began_ns >= SILENT_AFTER_NS && silent();
    bool over = run.burst ? now_ns >= run.deadline_ns || atomic_load(&step_count) >= atomic_load(&step_target)
                          : !wanted.continuous;
    run.pressed |= pool_pressed();
    if (records_seen.graph_kernels + records_seen.graph_launches != run.seen.graph_kernels + run.seen.graph_launches)
        graphs_seen();
    bool ends = zeros || deaf || over || run.pressed || run.kinds != wanted.kinds;
    bool turns = !ends && !run.burst && api_filter_turn(now_ns);
    if (own.asks && !ends && !turns)
        safepoint_over();
    own.asks = ends || turns;
    if (!own.asks || safepoint_ask(now_ns) != MEET_HERE) {
        flush_now_and_then(now_ns);
        return;
    }
    if (turns) {
        api_filter_switch(&own.cupti);
        safepoint_over();
        return;
    }
    if (run.pressed)
        coverage_taint();
    end(now_ns);
    if (zeros || deaf)
        finish(false);
    if (zeros)
        trace_enter(TRACE_OFF, CODE_GRAPH_TIMES,
                    "CUPTI loses timestamps inside CUDA graphs (its device buffers are full): kernel "
                    "tracing is off for the rest of this run");
    else if (deaf)
        block_silent();
}

static bool must_clean(void) { return own.finalize_due || switch_changed(); }

/* The trainer is met. CUPTI out of the launch path where that may be; attributes as they were found. */
static void clean(bool restore)
{
    bool out = own.finalize_due && takeout(&own.cupti);
    if (restore && !out)
        switch_restore(&own.cupti);
    own.finalize_due = false;
}

/* With nothing on: tracing begins, or CUPTI is taken out, when the trainer can be met. Where kernels
 * follow each other without a gap, the launches hide what CUPTI costs them, and its return, of some
 * 7 ms, would cost more. */
static void stand_ready(int64_t now_ns)
{
    bool traces = (wanted.burst || wanted.continuous) && !trace_held_back(wanted.kinds);
    bool asked = own.asks;
    own.asks = own.state == TRACE_READY &&
               (traces || (own.finalize_due && !own.hidden) || (own.leaving && must_clean()));
    if (traces && safepoint_world_failed()) {
        own.asks = false;
        trace_enter(TRACE_OFF, CODE_CUPTI_SLOW,
                    "CUPTI took longer than the trainer's threads may be held: kernel tracing is "
                    "off for the rest of this run");
        return;
    }
    if (traces && !asked)
        prepare();
    enum meet meet = own.asks ? safepoint_ask(now_ns) : MEET_LATER;
    if (meet == MEET_HERE && traces)
        begin();
    else if (meet == MEET_HERE)
        clean(own.leaving);
    if (meet != MEET_LATER || (asked && !own.asks))
        safepoint_over();
    if (meet == MEET_LATER)
        return;
    own.asks = own.finalize_due = false;
    if (meet == MEET_NEVER && traces)
        trace_missed();
    if (own.state == TRACE_TRACING && run.burst)
        safepoint_arm(atomic_load(&step_target));
}

int64_t trace_tick(int64_t now_ns)
{
    choose_place();
    own.leaving = own.leaving && server_clients() == 0 &&
                  (own.state == TRACE_TRACING || own.state == TRACE_DRAINING || must_clean());
    if (server_clients() == 0 && !own.leaving)
        return NEVER;
    if ((own.state == TRACE_WAITING || own.state == TRACE_ABSENT) && now_ns >= own.look_ns)
        trace_look(now_ns);
    if (own.state == TRACE_BLOCKED && now_ns >= own.retry_ns)
        trace_enter(TRACE_READY, CODE_READY, "kernel tracing is ready to try again");
    if (own.state == TRACE_READY)
        stand_ready(now_ns);
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
        if (own.asks)
            return safepoint_due(mono_ns());
        return run.flush_ns < run.deadline_ns ? run.flush_ns : run.deadline_ns;
    case TRACE_DRAINING:
        return run.drain_ns;
    case TRACE_READY: /* held back, or done already: brrr_graphs wakes */
        if (own.asks)
            return safepoint_due(now_ns);
        if (own.finalize_due && !own.hidden)
            return now_ns;
        return (wanted.burst || wanted.continuous) && !trace_held_back(wanted.kinds) ? now_ns : NEVER;
    default:
        return NEVER;
    }
}

/* What is on stays on until the trainer can be met: tried ever more seldom. Its records go nowhere, so
 * that nothing grows. */
static void stay(void)
{
    run.burst = own.leaving = true;
    run.deadline_ns = 0;
    pool_attended(false);
    coverage_taint();
    trace_enter(TRACE_TRACING, CODE_NO_PAUSE,
                run.world ? "tracing goes off as soon as no thread of the trainer is inside CUDA; its records "
                            "go nowhere until then"
                          : "tracing goes off between two training steps, or as soon as the trainer's main "
                            "thread can be held; its records go nowhere until then");
}

/* Where the trainer cannot be met in time, what is on stays on until it can be, unless it `must` go. */
static void leave(bool must)
{
    atomic_store(&step_target, UINT64_MAX);
    safepoint_over();
    wanted.burst = own.asks = false;
    if (!own.found)
        return;
    choose_place();
    if (own.state == TRACE_TRACING) {
        trace_flush();
        if (safepoint_within(MEET_MS) != MEET_HERE && !must) {
            stay();
            return;
        }
        end(mono_ns());
    }
    /* What was launched under tracing must be over before CUPTI can be taken out: waited for, a little. */
    int64_t until = mono_ns() + LEAVE_MS * NS_PER_MS;
    while (own.state == TRACE_DRAINING && mono_ns() < until && !agent_exiting() && graphs_ruled_out()) {
        drain(run.drain_ns = mono_ns());
        if (own.state == TRACE_DRAINING)
            nanosleep(&(struct timespec){0, 10 * NS_PER_MS}, NULL);
    }
    if (own.state == TRACE_DRAINING)
        drain(run.drain_ns = run.drain_end_ns = mono_ns());
    if (must_clean() && safepoint_within(MEET_AGAIN_MS) == MEET_HERE)
        clean(true);
    safepoint_over();
    own.finalize_due = false;
    pool_trim();
}

/* A switch beside a launch may kill the trainer. */
bool trace_must_wait(void) { return trace_is_on() && run.world; }

bool trace_is_on(void) { return own.found && own.state == TRACE_TRACING; }

void trace_retract(void)
{
    wanted.continuous = false;
    leave(false);
}

void trace_detach(bool must)
{
    wanted.continuous = false;
    leave(must && !trace_must_wait());
    if (must)
        safepoint_over(); /* nobody is left to ask again */
    pool_attended(false);
}

void trace_yield(const char *who)
{
    finalize_never(); /* as Kineto does */
    leave(true);
    switch_forget();
    if (own.state == TRACE_OFF)
        return;
    char text[256];
    snprintf(text, sizeof text, "%.120s is recording: kernel tracing waits", who);
    trace_enter(TRACE_YIELDED, CODE_PROFILER_RECORDS, text);
}

void trace_step(uint64_t count)
{
    atomic_store_explicit(&step_count, count, memory_order_relaxed);
    if (count == atomic_load_explicit(&step_target, memory_order_relaxed))
        agent_wake();
    safepoint_step(count);
}

void trace_forked(void)
{
    own.state = TRACE_WAITING;
    own.found = false;
    atomic_store(&step_target, UINT64_MAX);
    atomic_store(&step_count, 0);
    own.asks = own.finalize_due = own.leaving = false;
    memset(&run, 0, sizeof run);
    wanted.continuous = wanted.burst = false;
    api_filter_forget();
}
