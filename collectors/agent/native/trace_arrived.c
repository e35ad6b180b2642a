#include "trace_own.h"

#include "clock.h"
#include "coverage.h"
#include "pool.h"
#include "server.h"
#include "finalize.h"
#include "records.h"


static uint64_t dropped;

uint64_t trace_dropped(void) { return dropped; }

bool trace_was_asked(void)
{
    struct pool_counts pool;
    pool_count(&pool);
    return pool.requests != run.requests;
}

int64_t trace_flush(void)
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
    records_bounds(run.began_ns ? real_ns() - LONGEST_BURST_NS - CLOCK_ERROR_NS : 0,
                real_ns() + CLOCK_ERROR_NS);
    while ((slot = pool_take(&buffer, &valid)) >= 0) {
        if (server_clients() != 0 || own.state == TRACE_DRAINING)
            records_buffer(&own.cupti.strides, buffer, valid);
        pool_recycle(slot);
    }
}

void trace_ask_dropped(void)
{
    size_t count = 0;
    if (CUPTI_CALL(&own.cupti, dropped, NULL, 0, &count) == CUPTI_OK && count != 0) {
        dropped += count;
        coverage_taint();
    }
}

bool trace_whole(int64_t launched_ns)
{
    return launched_ns >= run.stopped_real_ns && records_arrived(&run.seen, graphs_possible());
}
