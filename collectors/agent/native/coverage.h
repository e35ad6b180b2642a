/* Which spans of device time were traced without a hole. Agent's thread only. */
#ifndef BRRR_COVERAGE_H
#define BRRR_COVERAGE_H

#include <stdbool.h>
#include <stdint.h>

void coverage_begin(int64_t enabled_ns);

/* Every device record goes through here. */
void coverage_add(uint32_t device, uint32_t stream, int64_t start_ns, int64_t end_ns);

/* While tracing goes on: everything launched before `launched_ns` has arrived. */
void coverage_advance(int64_t launched_ns);

/* Tracing stopped for launches after `stopped_ns`; `whole`: every record of those before arrived. */
void coverage_end(int64_t stopped_ns, bool whole);

/* Something of the span under way was lost: its next frame says so. */
void coverage_taint(void);

/* Device records since coverage_begin, and the end of the last one of them. */
uint64_t coverage_records(void);

/* Whether a device ran without a gap worth the name, as far as was seen. */
bool coverage_dense(void);

#endif
