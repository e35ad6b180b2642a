/* What trace.c and trace_blockers.c share: where tracing stands and why. Nobody else's. */
#ifndef BRRR_TRACE_OWN_H
#define BRRR_TRACE_OWN_H

#include "report.h"
#include "trace.h"
#include "records.h"

struct trace_own {
    struct trace_options options;
    struct cupti cupti;
    bool found; /* `cupti` is whole */
    enum trace_state state;
    enum status_code code;
    char says[768]; /* the code's sentence */
    int64_t look_ns, retry_ns; /* monotonic */
    uint32_t blocked_times;
    bool asks;        /* the trainer is asked to meet us */
    bool finalize_due; /* CUPTI is in the launch path without need */
    bool hidden;      /* where it costs nothing */
    bool leaving;     /* nobody watches any more, and something is still on */
};
extern struct trace_own own;

struct trace_wanted {
    bool continuous;
    uint32_t kinds;
    bool burst;              /* asked for, and not begun */
    int64_t steps, longest_ns;
};
extern struct trace_wanted wanted;

struct trace_run {
    bool burst;              /* a burst rather than continuous tracing */
    bool pressed;            /* the pool ran dry */
    bool world;              /* begun with the world held */
    uint32_t kinds;
    int64_t began_ns;        /* monotonic, as the next four */
    int64_t deadline_ns, flush_ns, drain_end_ns, drain_ns;
    int64_t stopped_real_ns;
    uint64_t steps, requests; /* counters when it began */
    uint64_t stopped_steps;
    struct record_counts seen;
    uint32_t drain_wait_ms;
    struct holds holds;
};
extern struct trace_run run;

/* The new state, and why as a code and as a sentence, told to the monitors when the state or the
 * sentence is new. */
void trace_enter(enum trace_state next, enum status_code code, const char *sentence);

/* All threads of the trainer may be held for these kinds. */
bool trace_may_hold(uint32_t kinds);

/* True: nobody can tell where the trainer launches, so nothing begins; the monitors are told. */
bool trace_held_back(uint32_t kinds);

/* Looks for CUDA and CUPTI. */
void trace_look(int64_t now_ns);

/* Somebody else has CUPTI, or it failed: again after 10, 30, then 60 s, with callbacks registered anew. */
void trace_block(enum status_code code, const char *sentence);

/* CUPTI answered `code` when asked to trace. */
void trace_refused(int code);

/* The trainer could not be met although it used to step. */
void trace_missed(void);

#define LONGEST_BURST_NS (60 * NS_PER_S)

/* Times of records are this far from the clock at most. */
#define CLOCK_ERROR_NS (120 * NS_PER_S)

/* CUPTI has asked for a buffer since tracing began. */
bool trace_was_asked(void);

/* Everything launched before the returned REALTIME instant has arrived. Not while the trainer is held. */
int64_t trace_flush(void);

/* Counts what CUPTI says it dropped. */
void trace_ask_dropped(void);

/* Nothing launched under tracing is missing, when everything before `launched_ns` has arrived. */
bool trace_whole(int64_t launched_ns);

#endif
