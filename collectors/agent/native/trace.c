#include "trace.h"

#define SILENT_AFTER_NS (3 * NS_PER_S)
#define SILENT_BURSTS 2
#define ZERO_IN_GRAPHS 100
#define LEAVE_MS 300
#define MEET_MS 1300
#define MEET_AGAIN_MS 250
#define LOOK_EVERY_NS (500 * NS_PER_MS)
#define LONGEST_BURST_NS (60 * NS_PER_S)
#define CLOCK_ERROR_NS (120 * NS_PER_S) /* times of records are this far from the clock at most */
#define NEVER INT64_MAX

struct tracing tracing;
static struct {
    int64_t look_ns, retry_ns; /* monotonic */
    uint32_t blocked_times;
    bool asks;        /* the trainer is asked to meet us */
    bool finalize_due; /* CUPTI is in the launch path without need */
    bool hidden;      /* where it costs nothing */
    bool leaving;     /* nobody watches any more, and something is still on */
} own;

static struct {
    uint32_t allowed;
    bool burst;              /* asked for, and not begun */
    int64_t steps, longest_ns;
} wanted;

static struct {
    bool burst;              /* a burst rather than continuous tracing */
    bool pressed;            /* the pool ran dry */
    bool world;              /* begun with the world held */
    uint32_t allowed;
    int64_t began_ns;        /* monotonic, as the next four */
    int64_t deadline_ns, flush_ns, drain_end_ns, drain_ns;
    int64_t stopped_real_ns;
    uint64_t steps, requests; /* counters when it began */
    uint64_t stopped_steps;
    struct record_counts seen;
    uint32_t drain_wait_ms;
    struct burst told;
} run;

static uint32_t silent_bursts;

static _Atomic uint64_t step_count, step_target = UINT64_MAX;

void trace_init(void)
{
    /* A second start in one process finds CUPTI anew, but what it refused for good stays refused. */
    if (tracing.state != TRACE_OFF || !tracing.found) {
        tracing.state = TRACE_WAITING;
        tracing.code = CODE_GPU_UNTOUCHED;
        snprintf(tracing.says, sizeof tracing.says, "waiting for the trainer to touch its GPU");
    }
    tracing.continuous = wanted.burst = false;
    wanted.allowed = 0;
    own.look_ns = 0;
    own.asks = own.finalize_due = own.leaving = false;
    own.blocked_times = silent_bursts = 0;
    api_filter_forget();
}

/* --- where it stands, and why --- */

/* The new state, and why as a code and as a sentence, told to the monitors when the state or the
 * sentence is new. */
static void enter(enum trace_state next, enum status_code code, const char *sentence)
{
    bool same = tracing.state == next && strcmp(tracing.says, sentence) == 0;
    tracing.state = next;
    tracing.code = code;
    if (sentence != tracing.says)
        snprintf(tracing.says, sizeof tracing.says, "%s", sentence);
    if (!same)
        report_status(EVERYBODY, NULL);
}

/* All threads of the trainer may be held. */
static bool may_hold(void)
{
    return wanted.allowed & ALLOWED_GRAPHS || (wanted.allowed & ALLOWED_HOLDS && !graphs_told() && !torch_is_mapped());
}

/* In a trainer without torch nobody tells which threads launch, and when none does: all of it is held
 * for the switch then. A torch that has not spoken yet may be about to. True: so nothing begins; the
 * monitors are told. */
static bool held_back(void)
{
    if (graphs_told() || may_hold())
        return false;
    enter(TRACE_READY, CODE_GRAPHS_UNKNOWN,
          torch_is_mapped() ? "kernel tracing waits to hear whether the trainer has CUDA graphs; "
                              "only torch can tell (--trace-graphs takes the risk: all its "
                              "threads are held outside CUDA for some ms at each switch)"
                            : "kernels of a program without torch are left out (--no-trace-graphs): all "
                              "its threads would be held outside CUDA at each switch");
    return true;
}

static void ready(void) { enter(TRACE_READY, CODE_READY, "kernel tracing is ready"); }

/* Looks for CUDA and CUPTI. */
static void look(int64_t now_ns)
{
    struct find_fault fault;
    own.look_ns = now_ns + LOOK_EVERY_NS;
    tracing.found = cupti_find(&tracing.cupti, wanted.allowed ? options.cupti : NULL, &fault);
    if (!tracing.found) {
        own.look_ns += fault.state == TRACE_ABSENT ? 3 * LOOK_EVERY_NS : 0;
        enter(fault.state, fault.code, fault.says);
        return;
    }
    pool_allow_null(tracing.cupti.version >= 27);
    tracing.has_calls = tracing.cupti.enable_runtime && tracing.cupti.enable_driver;
    if (tracing.has_calls)
        ready();
    else
        enter(TRACE_READY, CODE_NO_CALLS,
              "kernel tracing is ready, without launch and sync calls: CUPTI older than 12.6");
}

/* Somebody else has CUPTI, or it failed: again after 10, 30, then 60 s, with callbacks registered anew. */
static void block(enum status_code code, const char *sentence)
{
    static const int PAUSES_S[] = {10, 30, 60};
    uint32_t step = own.blocked_times < 2 ? own.blocked_times : 2;
    own.blocked_times++;
    own.retry_ns = mono_ns() + PAUSES_S[step] * NS_PER_S;
    switch_forget();
    char text[768];
    snprintf(text, sizeof text, "%.600s; next try in %d s", sentence, PAUSES_S[step]);
    enter(TRACE_BLOCKED, code, text);
}

/* CUPTI answered `code` when asked to trace. */
static void refused(int code)
{
    char fault[160], text[512];
    cupti_last_fault(&tracing.cupti, fault, sizeof fault);
    if (code == CUPTI_MULTIPLE_SUBSCRIBERS || code == CUPTI_NOT_COMPATIBLE ||
        code == CUPTI_HARDWARE_BUSY) {
        snprintf(text, sizeof text, "another profiler holds CUPTI (%s)", fault);
        block(CODE_CUPTI_TAKEN, text);
    } else if (code == CUPTI_INSUFFICIENT_PRIVILEGES || code == CUPTI_NOT_SUPPORTED ||
               (code >= 40 && code <= 47)) {
        snprintf(text, sizeof text, "kernel tracing is not permitted or not supported here (%s)", fault);
        enter(TRACE_OFF, CODE_NOT_PERMITTED, text);
    } else {
        snprintf(text, sizeof text, "CUPTI failed (%s)", fault);
        block(CODE_CUPTI_FAILED, text);
    }
}

void trace_resume(void)
{
    if (tracing.state != TRACE_YIELDED)
        return;
    own.look_ns = 0;
    if (tracing.found)
        ready();
    else
        enter(TRACE_WAITING, CODE_GPU_UNTOUCHED, "waiting for the trainer to touch its GPU");
}

/* The trainer could not be met although it used to step. */
static void missed(void)
{
    wanted.burst = false;
    tracing.says[0] = '\0';
    if (held_world.says != NULL) {
        char text[320];
        snprintf(text, sizeof text, "kernel tracing begins while no thread of the trainer is inside CUDA, and %s",
                 held_world.says);
        enter(TRACE_READY, CODE_NO_PAUSE, text);
        return;
    }
    enter(TRACE_READY, CODE_NO_STEP,
          "kernel tracing begins between two training steps, and none has ended for a while");
}

/* --- what arrived --- */

/* CUPTI has asked for a buffer since tracing began. */
static bool was_asked(void) { return atomic_load(&pool_counts.requests) != run.requests; }

/* Everything launched before the returned REALTIME instant has arrived. Not while the trainer is held. */
static int64_t flush(void)
{
    int64_t before_ns = real_ns();
    CUPTI_CALL(&tracing.cupti, flush, 0);
    int64_t lent_ns = pool_lent_since_ns();
    trace_pump();
    return lent_ns < before_ns ? lent_ns : before_ns;
}

void trace_pump(void)
{
    const uint8_t *buffer;
    size_t valid;
    int slot;
    if (!tracing.found)
        return;
    records_bounds(run.began_ns ? real_ns() - LONGEST_BURST_NS - CLOCK_ERROR_NS : 0,
                   real_ns() + CLOCK_ERROR_NS);
    while ((slot = pool_take(&buffer, &valid)) >= 0) {
        if (server_clients() != 0 || tracing.state == TRACE_DRAINING)
            records_buffer(&tracing.cupti.strides, buffer, valid);
        pool_recycle(slot);
    }
}

/* Counts what CUPTI says it dropped. */
static void ask_dropped(void)
{
    size_t count = 0;
    if (CUPTI_CALL(&tracing.cupti, dropped, NULL, 0, &count) == CUPTI_OK && count != 0) {
        tracing.dropped += count;
        coverage_taint();
    }
}

/* Nothing launched under tracing is missing, when everything before `launched_ns` has arrived. */
static bool whole(int64_t launched_ns)
{
    return launched_ns >= run.stopped_real_ns && records_arrived(&run.seen, graphs_possible());
}

/* --- on and off --- */

static bool silent(void)
{
    return !was_asked() && records_seen.kernels == run.seen.kernels && atomic_load(&step_count) > run.steps;
}

/* CUPTI asks for no buffer while it holds one with room, and gives none back before all of it is over. */
static void block_silent(void)
{
    int64_t since_ns = pool_lent_since_ns();
    if (since_ns == INT64_MAX) {
        block(CODE_NO_RECORDS, "no records arrive: another profiler owns the callbacks");
        return;
    }
    char text[192];
    snprintf(text, sizeof text,
             "no records arrive: CUPTI has kept a buffer of them for %lld s, as it does while work on the "
             "GPU does not end",
             (long long)((real_ns() - since_ns) / NS_PER_S));
    block(CODE_RECORDS_HELD, text);
}

/* How the trainer is met: what was switched on at a place where nothing of the runtime's API was
 * under way goes off at such a place only, whoever watches by then. Where steps come, one is waited for first. */
static void choose_place(void)
{
    bool may = tracing.state == TRACE_TRACING ? run.world : may_hold() || (run.world && !graphs_told());
    bool hooked = graphs_told() || atomic_load(&step_count) > 0;
    held_world.when = !may ? WORLD_NEVER : hooked ? WORLD_LAST : WORLD_ONLY;
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
    memset(&run, 0, sizeof run);
    run.requests = atomic_load(&pool_counts.requests);
    run.told.out_ns = safepoint_longest_ns(); /* of this one is known once it is over */
    run.seen = records_seen;
    run.burst = wanted.burst;
    run.allowed = wanted.allowed;
    records_forget_names();
    coverage_begin(real_ns());
    records_bounds(real_ns() - CLOCK_ERROR_NS, NEVER);
    bool driver = api_filter_begin();
    run.world = held_world.held;
    bool on = switch_on(&tracing.cupti, !run.world, driver || run.world, &code), lost = world_lost();
    safepoint_over();
    if (!on) {
        wanted.burst = false;
        refused(code);
        return;
    }
    agent_guard_exit();
    int64_t now_ns = mono_ns(); /* the time that it took is none of the burst's */
    api_filter_began(now_ns);
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
    if (lost) { /* half of it may be on: off with it, as soon as the trainer is held again */
        run.burst = true;
        run.deadline_ns = 0;
    }
    requests_raise(BRRR_EV_TRACING);
    enter(TRACE_TRACING, CODE_TRACING, run.burst ? "tracing a burst" : "tracing continuously");
}

static void finish(bool complete)
{
    if (pool_lent_since_ns() < run.stopped_real_ns)
        coverage_taint();
    ask_dropped();
    lanes_flush();
    coverage_end(run.stopped_real_ns, complete);
    tracing.bursts++;
    silent_bursts = silent() ? silent_bursts + 1 : 0;
    if (records_seen.kernels != run.seen.kernels || records_seen.copies != run.seen.copies)
        own.blocked_times = 0;
    own.finalize_due = complete && was_asked(); /* else the callbacks may be somebody else's */
    own.hidden = coverage_dense();
    run.told.off_ns = safepoint_longest_ns();
    run.told.kernels = records_seen.kernels - run.seen.kernels;
    run.told.steps = run.stopped_steps - run.steps;
    run.told.whole = complete;
    run.told.all_threads = run.world;
    run.told.launches = api_filter_ended();
    report_status(EVERYBODY, &run.told);
    if (silent_bursts >= SILENT_BURSTS) {
        silent_bursts = 0;
        block_silent();
        return;
    }
    ready();
}

/* The trainer is met; it goes on as soon as nothing is on any more. */
static void end(int64_t now_ns)
{
    atomic_store(&step_target, UINT64_MAX);
    run.stopped_real_ns = real_ns();
    run.stopped_steps = atomic_load(&step_count);
    run.told.on_ns = safepoint_longest_ns();
    bool off = switch_off(&tracing.cupti);
    safepoint_over();
    own.asks = false;
    if (!off)
        return; /* it is over still: asked for again */
    int64_t launched_ns = flush();
    tracing.state = TRACE_DRAINING;
    run.drain_end_ns = now_ns + options.drain_ms * NS_PER_MS;
    run.drain_wait_ms = 10;
    run.drain_ns = now_ns;
    if (launched_ns >= run.stopped_real_ns && records_seen.kernels == run.seen.kernels)
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

static void flush_now_and_then(int64_t now_ns)
{
    if (now_ns < run.flush_ns)
        return;
    int64_t launched_ns = flush();
    ask_dropped();
    lanes_flush();
    coverage_advance(launched_ns);
    run.flush_ns = mono_ns() + options.flush_ms * NS_PER_MS;
}

static void watch(int64_t now_ns)
{
    bool zeros = records_seen.zero_in_graphs >= ZERO_IN_GRAPHS;
    bool deaf = now_ns - run.began_ns >= SILENT_AFTER_NS && silent();
    bool over = run.burst ? now_ns >= run.deadline_ns || atomic_load(&step_count) >= atomic_load(&step_target)
                          : !tracing.continuous;
    run.pressed |= pool_pressed();
    if (records_seen.graph_kernels + records_seen.graph_launches != run.seen.graph_kernels + run.seen.graph_launches)
        graphs_seen();
    bool ends = zeros || deaf || over || run.pressed || run.allowed != wanted.allowed;
    bool turns = !ends && !run.burst && api_filter_turn(now_ns);
    if (own.asks && !ends && !turns)
        safepoint_over();
    own.asks = ends || turns;
    if (!own.asks || safepoint_ask(now_ns) != MEET_HERE) {
        flush_now_and_then(now_ns);
        return;
    }
    if (turns) {
        api_filter_switch(&tracing.cupti);
        safepoint_over();
        return;
    }
    if (run.pressed)
        coverage_taint();
    end(now_ns);
    if (tracing.state != TRACE_DRAINING)
        return;
    if (zeros || deaf)
        finish(false);
    if (zeros)
        enter(TRACE_OFF, CODE_GRAPH_TIMES,
              "CUPTI loses timestamps inside CUDA graphs (its device buffers are full): kernel "
              "tracing is off for the rest of this run");
    else if (deaf)
        block_silent();
}

static bool must_clean(void) { return own.finalize_due || switch_changed(); }

/* The trainer is met. CUPTI out of the launch path where that may be; attributes as they were found. */
static void clean(bool restore)
{
    bool out = own.finalize_due && takeout(&tracing.cupti);
    if (restore && !out)
        switch_restore(&tracing.cupti);
    own.finalize_due = false;
}

/* With nothing on: tracing begins, or CUPTI is taken out, when the trainer can be met. Where kernels
 * follow each other without a gap, the launches hide what CUPTI costs them, and its return, of some
 * 7 ms, would cost more. */
static void stand_ready(int64_t now_ns)
{
    bool traces = (wanted.burst || tracing.continuous) && !held_back();
    bool asked = own.asks;
    own.asks = tracing.state == TRACE_READY &&
               (traces || (own.finalize_due && !own.hidden) || (own.leaving && must_clean()));
    if (traces && held_world.failed) {
        own.asks = false;
        enter(TRACE_OFF, CODE_CUPTI_SLOW,
              "the trainer's threads had to go on before CUPTI was switched (it took longer than they may "
              "be held, or what held them was killed): kernel tracing is off for the rest of this run");
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
        missed();
    if (tracing.state == TRACE_TRACING && run.burst)
        safepoint_arm(atomic_load(&step_target));
}

int64_t trace_tick(int64_t now_ns)
{
    choose_place();
    own.leaving = own.leaving && server_clients() == 0 &&
                  (tracing.state == TRACE_TRACING || tracing.state == TRACE_DRAINING || must_clean());
    if (server_clients() == 0 && !own.leaving)
        return NEVER;
    if ((tracing.state == TRACE_WAITING || tracing.state == TRACE_ABSENT) && now_ns >= own.look_ns)
        look(now_ns);
    if (tracing.state == TRACE_BLOCKED && now_ns >= own.retry_ns)
        enter(TRACE_READY, CODE_READY, "kernel tracing is ready to try again");
    if (tracing.state == TRACE_READY)
        stand_ready(now_ns);
    else if (tracing.state == TRACE_TRACING)
        watch(now_ns);
    if (tracing.state == TRACE_DRAINING && now_ns >= run.drain_ns)
        drain(now_ns);
    switch (tracing.state) {
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
        return (wanted.burst || tracing.continuous) && !held_back() ? now_ns : NEVER;
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
    enter(TRACE_TRACING, CODE_NO_PAUSE,
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
    if (!tracing.found)
        return;
    choose_place();
    if (tracing.state == TRACE_TRACING) {
        flush();
        if (safepoint_within(MEET_MS) != MEET_HERE && !must) {
            stay();
            return;
        }
        end(mono_ns());
        if (tracing.state == TRACE_TRACING) {
            stay();
            return;
        }
    }
    /* What was launched under tracing must be over before CUPTI can be taken out: waited for, a little. */
    int64_t until = mono_ns() + LEAVE_MS * NS_PER_MS;
    while (tracing.state == TRACE_DRAINING && mono_ns() < until && !agent_exiting() && graphs_ruled_out()) {
        drain(run.drain_ns = mono_ns());
        if (tracing.state == TRACE_DRAINING)
            nanosleep(&(struct timespec){0, 10 * NS_PER_MS}, NULL);
    }
    if (tracing.state == TRACE_DRAINING)
        drain(run.drain_ns = run.drain_end_ns = mono_ns());
    if (must_clean() && safepoint_within(MEET_AGAIN_MS) == MEET_HERE)
        clean(true);
    safepoint_over();
    own.finalize_due = false;
    pool_trim();
}

/* A switch beside a launch may kill the trainer. */
bool trace_must_wait(void) { return trace_is_on() && run.world; }

bool trace_is_on(void) { return tracing.found && tracing.state == TRACE_TRACING; }

void trace_detach(bool must)
{
    tracing.continuous = false;
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
    if (tracing.state == TRACE_OFF)
        return;
    char text[256];
    snprintf(text, sizeof text, "%.120s is recording: kernel tracing waits", who);
    enter(TRACE_YIELDED, CODE_PROFILER_RECORDS, text);
}

void trace_want(bool continuous, uint32_t allowed)
{
    tracing.continuous = continuous;
    wanted.allowed = allowed;
}

void trace_burst(int64_t steps, int64_t longest_ns)
{
    if (tracing.state == TRACE_TRACING && !run.burst)
        return; /* continuous tracing holds every burst */
    wanted.steps = steps > 0 ? steps : 0;
    wanted.longest_ns = longest_ns < LONGEST_BURST_NS ? longest_ns : LONGEST_BURST_NS;
    wanted.burst = true;
    if (tracing.state != TRACE_READY && tracing.state != TRACE_TRACING && tracing.state != TRACE_DRAINING)
        report_status(EVERYBODY, NULL);
}

void trace_burst_end(void)
{
    wanted.burst = false;
    if (tracing.state == TRACE_TRACING && run.burst)
        run.deadline_ns = mono_ns();
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
    tracing.state = TRACE_WAITING;
    tracing.found = false;
    atomic_store(&step_target, UINT64_MAX);
    atomic_store(&step_count, 0);
    memset(&run, 0, sizeof run);
}
