/* What trace.c and trace_hurdles.c share: where tracing stands and why. Nobody else's. */
#ifndef BRRR_TRACE_OWN_H
#define BRRR_TRACE_OWN_H

#include "trace.h"

struct trace_own {
    struct trace_options options;
    struct cupti cupti;
    bool found; /* `cupti` is whole */
    enum trace_state state;
    char says[768];
    int64_t look_ns, retry_ns; /* monotonic */
    uint32_t blocked_times;
    bool held_back; /* blocked because of CUDA graphs */
};
extern struct trace_own own;

/* The new state and its sentence, told to the monitors when either is new. */
void trace_enter(enum trace_state next, const char *sentence);

/* True: the trainer may hold CUDA graphs, so nothing begins; the monitors are told. */
bool trace_held_back(uint32_t kinds);

/* Looks for CUDA and CUPTI. */
void trace_look(int64_t now_ns);

/* Somebody else has CUPTI, or it failed: again after 10, 30, then 60 s, with callbacks registered anew. */
void trace_block(const char *sentence);

/* CUPTI answered `code` when asked to trace. */
void trace_refused(int code);

#endif
