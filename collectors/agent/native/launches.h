/* Launches and their kernels, which share a correlation id: who has its row, whether a burst has the row of
 * every launch, and which API's rows are worth their cost. Agent's thread only. */
#ifndef BRRR_LAUNCHES_H
#define BRRR_LAUNCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "cupti.h"

void correlation_kernel(uint32_t correlation);

/* `what` is an enum call_class: a launch of one kernel, one of a graph, which may hold none, or a call that
 * launches nothing. */
void correlation_call(uint32_t correlation, bool driver, uint16_t what);

/* Launches since the first kernel whose own kernel has not come. */
uint64_t correlation_pending(void);

/* Nothing is known of this trainer. */
void api_filter_forget(void);

/* Tracing will begin. True: it should take the rows of the driver's API too. */
bool api_filter_begin(void);

/* Everything is on. */
void api_filter_began(int64_t now_ns);

/* While tracing goes on without an end. True: the driver's rows should be taken up or given up, by
 * api_filter_switch, when the trainer is met. */
bool api_filter_turn(int64_t now_ns);
void api_filter_switch(const struct cupti *cupti);

/* Everything that came has been converted. LAUNCHES_UNASKED: this CUPTI cannot
 * tell them. LAUNCHES_SOME: a kernel launched meanwhile lacks the row of its launch. */
enum launches { LAUNCHES_UNASKED, LAUNCHES_SOME, LAUNCHES_ALL };
enum launches api_filter_ended(void);

#endif
