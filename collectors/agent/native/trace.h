/* When device activity is traced, and when not. Agent's thread only, but for trace_step. */
#ifndef BRRR_TRACE_H
#define BRRR_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cupti.h"

enum trace_state {
    TRACE_WAITING,  /* no CUDA context yet */
    TRACE_ABSENT,   /* no libcupti yet */
    TRACE_READY,
    TRACE_TRACING,
    TRACE_DRAINING, /* kinds are off, records of the burst still come */
    TRACE_YIELDED,  /* another profiler of this process has its turn */
    TRACE_BLOCKED,  /* somebody else has CUPTI: again later */
    TRACE_OFF       /* for good */
};

void trace_init(void);

/* Does what is due; returns the CLOCK_MONOTONIC time of the next thing due. */
int64_t trace_tick(int64_t now_ns);

/* What the monitors want, all together. */
void trace_want(bool continuous, uint32_t allowed);
void trace_burst(int64_t steps, int64_t longest_ns);
void trace_burst_end(void);

/* Off as soon as the trainer can be met: nobody is left to read. */
void trace_retract(void);

/* Flushed, then off, attributes as they were found; `must`: though the trainer could not be met. */
void trace_detach(bool must);
bool trace_is_on(void);

/* What is on was switched on while all threads were held, and may only be switched off so. */
bool trace_must_wait(void);
void trace_yield(const char *who);
void trace_resume(void);

/* Walks the buffers that came back. */
void trace_pump(void);

enum trace_state trace_state(void);
const char *trace_state_name(enum trace_state state);
enum status_code trace_code(void);
const char *trace_says(void);
bool trace_continuous(void);
uint64_t trace_bursts(void);
uint64_t trace_dropped(void);
const struct cupti *trace_cupti(void);
bool trace_has_calls(void);

/* A step ended (any thread). */
void trace_step(uint64_t count);
void trace_forked(void);

#endif
