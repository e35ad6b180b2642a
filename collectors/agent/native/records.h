/* One CUPTI buffer into wire records. Agent's thread only. */
#ifndef BRRR_RECORDS_H
#define BRRR_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layouts.h"

struct record_counts {
    uint64_t kernels, copies, calls;
    uint64_t launches;         /* launch rows that queued one kernel each */
    uint64_t launched_kernels; /* kernels outside graphs */
    uint64_t graph_kernels, graph_launches;
    uint64_t zero_timestamps, zero_in_graphs;
    uint64_t wrong_clock;      /* records hours away from the trainer's clock */
    uint64_t unknown_kinds;    /* records of unknown length: the rest of their buffers is lost */
    uint32_t last_launch;
};
extern struct record_counts records_seen;

/* Times outside [earliest, latest] are not of this clock. */
void records_bounds(int64_t earliest_ns, int64_t latest_ns);

/* Forgets which address held which name: a module may have been unloaded. */
void records_forget_names(void);

/* Whether each launch that was seen `since` has its kernel. Beside `graphs` only their numbers can be
 * compared: a launch that is captured has none. */
bool records_arrived(const struct record_counts *since, bool graphs);

void records_buffer(const struct strides *strides, const uint8_t *buffer, size_t valid);

#endif
