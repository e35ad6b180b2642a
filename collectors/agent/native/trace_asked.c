#include "trace_own.h"

#include "clock.h"
#include "report.h"
#include "wire.h"

#define USUAL_BURST_NS (2 * NS_PER_S)

void trace_want(bool continuous, uint32_t kinds)
{
    wanted.continuous = continuous;
    wanted.kinds = kinds;
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
