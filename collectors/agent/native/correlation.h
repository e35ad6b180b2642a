/* Which launches have their kernel by now, and which kernels the row of their launch. A kernel and
 * the calls that launched it share a correlation id. Agent's thread only. */
#ifndef BRRR_CORRELATION_H
#define BRRR_CORRELATION_H

#include <stdbool.h>
#include <stdint.h>

struct correlation {
    uint64_t kernels;    /* launched between the first and the last launch row */
    uint64_t unlaunched; /* of them: without the row of their launch */
    uint64_t by_driver;  /* of them: with a row of the driver's API alone */
    uint64_t driver;     /* other rows of the driver's API without one of the runtime's */
};

/* Nothing was traced yet. */
void correlation_begin(void);

void correlation_kernel(uint32_t correlation);

/* A launch of one kernel, one of a graph, which may hold none, or a call that launches nothing. */
enum correlation_call { PAIRS_LAUNCH, PAIRS_GRAPH, PAIRS_OTHER };
void correlation_call(uint32_t correlation, bool driver, enum correlation_call what);

/* What was found since the last time this was asked. `ended`: nothing more will come; else the
 * newest are left for the next time, as rows of theirs may be on their way. */
struct correlation correlation_take(bool ended);

/* Launches since the first kernel whose own kernel has not come. */
uint64_t correlation_pending(void);

#endif
