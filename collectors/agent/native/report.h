/* What the agent says of itself: hello, status, losses. Agent's thread only. */
#ifndef BRRR_REPORT_H
#define BRRR_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launches.h"

/* Remembers a HELLO, in place of the one before, or a DEVICE, for monitors that come later (copied). */
bool report_keep(uint16_t kind, const char *json);

/* Everything a new monitor must know first. */
void report_welcome(int slot);

/* To one monitor, or to EVERYBODY. */
void report_status(int slot);

/* How long the trainer was held, in ns: to take CUPTI out after the burst before, to begin, to end. */
struct holds {
    int64_t out_ns, on_ns, off_ns;
};

/* A burst ended. */
struct burst {
    uint64_t kernels, steps;
    bool whole;             /* every kernel came */
    bool all_threads;       /* were held for each switch */
    enum launches launches; /* whether the row of its launch did too */
    struct holds holds;
};
void report_traced(const struct burst *burst);

/* The totals of what was lost, when they changed; at most once a second. */
void report_losses(int64_t now_ns);
uint64_t report_lost(void);

void report_forked(void);

#endif
