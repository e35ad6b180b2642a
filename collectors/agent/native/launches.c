#include "trace.h"

/* Every launch pays 0.5 us for the driver's rows (H200, CUPTI 13.0.85), and in many trainers nearly
 * all launches go through the runtime: a kernel in 20 may do without a launch row before the rest
 * pays for it. Compiled models (Triton) and large matrix products (cuBLASLt) are far above that. */
#define WORTH 20
#define EVIDENCE 100  /* kernels before the driver's rows are given up */
#define LOOK_AGAIN 32 /* bursts: calls that launch nothing, such as waits, show only when asked for */
#define LEARN_EVERY_NS NS_PER_S

/* Ids grow by one a call, so that a kernel and its calls meet here while fewer than CELLS calls lie
 * between them: more than all the buffers of the pool hold. */
#define CELLS (1u << 17)
#define LAG 1024u /* as many ids may still be on their way while tracing goes on */

enum { KERNEL = 1, RUNTIME = 2, DRIVER = 4, LAUNCH = 8, GRAPH = 16, COUNTED = 32 };

static uint32_t ids[CELLS];
static uint8_t flags[CELLS];

struct correlation {
    uint64_t kernels;    /* launched between the first and the last launch row */
    uint64_t unlaunched; /* of them: without the row of their launch */
    uint64_t by_driver;  /* of them: with a row of the driver's API alone */
    uint64_t driver;     /* other rows of the driver's API without one of the runtime's */
};

/* Ids, which may wrap: kernels before the first row, and behind the last, were launched while no
 * rows were taken; launches before the first kernel while no kernels were. */
static struct {
    bool rows, kernels; /* any yet */
    uint32_t first_row, last_row, first_kernel;
    struct correlation gone;  /* what lost its cell since it was last asked for */
    uint64_t pending;   /* the same, since the beginning */
} seen;

static bool before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

static bool pending(uint32_t id, uint8_t has)
{
    return (has & (LAUNCH | GRAPH | KERNEL)) == LAUNCH && seen.kernels && before(seen.first_kernel, id);
}

static void count(struct correlation *into, uint32_t id, uint8_t has)
{
    if (has & COUNTED)
        return;
    if (has & KERNEL) {
        if (seen.rows && (before(id, seen.first_row) || before(seen.last_row, id)))
            return;
        into->kernels++;
        into->unlaunched += !(has & LAUNCH);
        into->by_driver += (has & (LAUNCH | DRIVER | RUNTIME)) == (LAUNCH | DRIVER);
    } else {
        into->driver += (has & (LAUNCH | DRIVER | RUNTIME)) == DRIVER;
    }
}

static void mark(uint32_t id, uint8_t what)
{
    uint32_t cell = id % CELLS;
    if (flags[cell] != 0 && ids[cell] != id) {
        if (before(id, ids[cell])) /* came too late to be told */
            return;
        count(&seen.gone, ids[cell], flags[cell]);
        seen.pending += pending(ids[cell], flags[cell]);
        flags[cell] = 0;
    }
    ids[cell] = id;
    flags[cell] |= what;
}

void correlation_kernel(uint32_t correlation)
{
    if (!seen.kernels || before(correlation, seen.first_kernel))
        seen.first_kernel = correlation;
    seen.kernels = true;
    mark(correlation, KERNEL);
}

void correlation_call(uint32_t correlation, bool driver, uint16_t what)
{
    uint8_t has = driver ? DRIVER : RUNTIME;
    if (what == CALL_LAUNCH || what == CALL_GRAPH_LAUNCH) {
        if (!seen.rows || before(correlation, seen.first_row))
            seen.first_row = correlation;
        if (!seen.rows || before(seen.last_row, correlation))
            seen.last_row = correlation;
        seen.rows = true;
        has |= LAUNCH;
    }
    mark(correlation, has | (what == CALL_GRAPH_LAUNCH ? GRAPH : 0));
}

/* What was found since the last time this was asked. `ended`: nothing more will come; else the
 * newest are left for the next time, as rows of theirs may be on their way. */
static struct correlation correlation_take(bool ended)
{
    struct correlation found = seen.gone;
    memset(&seen.gone, 0, sizeof seen.gone);
    for (uint32_t cell = 0; cell < CELLS; cell++) {
        if (flags[cell] == 0 || (!ended && !(seen.rows && before(ids[cell], seen.last_row - LAG))))
            continue;
        count(&found, ids[cell], flags[cell]);
        flags[cell] |= COUNTED;
    }
    return found;
}

uint64_t correlation_pending(void)
{
    uint64_t found = seen.pending;
    for (uint32_t cell = 0; cell < CELLS; cell++)
        found += pending(ids[cell], flags[cell]);
    return found;
}

static struct {
    bool without;                   /* the driver's rows told nothing */
    uint32_t bursts;                /* since they were last taken */
    uint64_t unexplained_per_mille; /* of the kernels: explained by no row of either API */
} known;

static struct {
    bool runtime, driver, turns;
    int64_t learn_ns;
    uint64_t unlaunched;
} run;

void api_filter_forget(void) { memset(&known, 0, sizeof known); }

static bool choose(void)
{
    if (known.without && ++known.bursts < LOOK_AGAIN)
        return false;
    known.bursts = 0;
    return true;
}

bool api_filter_begin(void)
{
    memset(&run, 0, sizeof run);
    memset(flags, 0, sizeof flags);
    memset(&seen, 0, sizeof seen);
    return choose();
}

void api_filter_began(int64_t now_ns)
{
    run.runtime = switch_takes(KIND_RUNTIME);
    run.driver = switch_takes(KIND_DRIVER);
    run.learn_ns = now_ns + LEARN_EVERY_NS;
}

static void learn(bool ended)
{
    struct correlation found = correlation_take(ended);
    uint64_t kernels = found.kernels;
    run.unlaunched += found.unlaunched;
    if (!run.runtime)
        return;
    if (!run.driver) {
        uint64_t usual = known.unexplained_per_mille * kernels / 1000;
        if (found.unlaunched > usual && (found.unlaunched - usual) * WORTH > kernels)
            known.without = false;
    } else if (found.driver != 0 || found.by_driver * WORTH > kernels) {
        known.without = false;
    } else if (kernels >= EVIDENCE) {
        known.without = true;
        known.unexplained_per_mille = found.unlaunched * 1000 / kernels;
    }
}

bool api_filter_turn(int64_t now_ns)
{
    if (!run.runtime || run.turns || now_ns < run.learn_ns)
        return run.turns;
    run.learn_ns = now_ns + LEARN_EVERY_NS;
    learn(false);
    return run.turns = choose() != run.driver;
}

void api_filter_switch(const struct cupti *cupti)
{
    run.driver = switch_driver(cupti, !run.driver);
    run.turns = false;
}

enum launches api_filter_ended(void)
{
    learn(true);
    if (!run.runtime)
        return LAUNCHES_UNASKED;
    return run.unlaunched == 0 ? LAUNCHES_ALL : LAUNCHES_SOME;
}
