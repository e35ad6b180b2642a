/* What the parts may ask of the whole. */
#ifndef BRRR_AGENT_H
#define BRRR_AGENT_H

#include <stdbool.h>
#include <stdint.h>

/* Of the present start, as brrr_start describes them. Written while there is no agent's thread. */
struct options {
    uint32_t buffer_bytes, max_buffers, outbox_bytes, idle_retract_ms, drain_ms, flush_ms;
    char cupti[400]; /* a libcupti for a process that has mapped none; empty: none */
};
extern struct options options;

/* 0, or a negative enum brrr_code with its sentence. */
int options_read(const char *text);

/* Makes the agent's thread look around. Async-signal-safe, any thread. */
void agent_wake(void);

/* A monitor asked for the end. */
void agent_detach(void);

/* Somebody wants to see more: a detach that has not come to its end is void. */
void agent_stay(void);

/* CUPTI has been used for the first time. */
void agent_guard_exit(void);

bool agent_exiting(void);
bool agent_listens(void);
void abi_forked(void);

/* Remembers the sentence for brrr_last_error and answers `code`. */
int agent_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
