#include "correlation.h"

#include <string.h>

/* Ids grow by one a call, so that a kernel and its calls meet here while fewer than CELLS calls lie
 * between them: more than all the buffers of the pool hold. */
#define CELLS (1u << 17)
#define LAG 1024u /* as many ids may still be on their way while tracing goes on */

enum { KERNEL = 1, RUNTIME = 2, DRIVER = 4, LAUNCH = 8, GRAPH = 16, COUNTED = 32 };

static uint32_t ids[CELLS];
static uint8_t flags[CELLS];

/* Ids, which may wrap: kernels before the first row, and behind the last, were launched while no
 * rows were taken; launches before the first kernel while no kernels were. */
static struct {
    bool rows, kernels; /* any yet */
    uint32_t first_row, last_row, first_kernel;
    struct correlation gone;  /* what lost its cell since it was last asked for */
    uint64_t pending;   /* the same, since the beginning */
} seen;

static bool before(uint32_t a, uint32_t b) { return (int32_t)(a - b) < 0; }

void correlation_begin(void)
{
    memset(flags, 0, sizeof flags);
    memset(&seen, 0, sizeof seen);
}

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

void correlation_call(uint32_t correlation, bool driver, enum correlation_call what)
{
    uint8_t has = driver ? DRIVER : RUNTIME;
    if (what != PAIRS_OTHER) {
        if (!seen.rows || before(correlation, seen.first_row))
            seen.first_row = correlation;
        if (!seen.rows || before(seen.last_row, correlation))
            seen.last_row = correlation;
        seen.rows = true;
        has |= LAUNCH;
    }
    mark(correlation, has | (what == PAIRS_GRAPH ? GRAPH : 0));
}

struct correlation correlation_take(bool ended)
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
