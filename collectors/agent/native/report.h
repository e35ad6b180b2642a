/* What the agent says of itself: hello, status, losses. Agent's thread only. */
#ifndef BRRR_REPORT_H
#define BRRR_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api_filter.h"

/* Takes over the text, made with malloc: one JSON object. */
void report_hello(char *json);
void report_hello_again(void);

/* A frame to repeat to monitors that come later (copied). */
void report_keep_device(const char *json, size_t bytes);

/* Everything a new monitor must know first. */
void report_welcome(int slot);

void report_status(void);
void report_status_to(int slot);

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
