/* Which API's rows are worth their cost, and whether a burst has the row of every launch. Agent's
 * thread only. */
#ifndef BRRR_API_FILTER_H
#define BRRR_API_FILTER_H

#include <stdbool.h>
#include <stdint.h>

#include "cupti.h"

/* Nothing is known of this trainer. */
void api_filter_forget(void);

/* Tracing will begin. True: it should take the rows of the driver's API too. */
bool api_filter_begin(uint32_t want);

/* Everything is on. */
void api_filter_began(int64_t now_ns);

/* While tracing goes on without an end. True: the driver's rows should be taken up or given up, by
 * api_filter_switch, when the trainer is met. */
bool api_filter_turn(int64_t now_ns);
void api_filter_switch(const struct cupti *cupti);

/* Everything that came has been converted. LAUNCHES_UNASKED: nobody asked for launches, or this CUPTI
 * cannot tell them. LAUNCHES_SOME: a kernel launched meanwhile lacks the row of its launch. */
enum launches { LAUNCHES_UNASKED, LAUNCHES_SOME, LAUNCHES_ALL };
enum launches api_filter_ended(void);

#endif
