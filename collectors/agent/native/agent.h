/* What the parts may ask of the whole. */
#ifndef BRRR_AGENT_H
#define BRRR_AGENT_H

/* Makes the agent's thread look around. Async-signal-safe, any thread. */
void agent_wake(void);

/* Raises bits of enum brrr_event for brrr_wait. */
void agent_raise(int bits);

/* A monitor asked for the end. */
void agent_detach(void);

/* Remembers the sentence for brrr_last_error and answers `code`. */
int agent_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
