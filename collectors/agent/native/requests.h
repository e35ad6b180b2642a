/* Where the trainer's threads and the agent's meet: requests, answers, events. */
#ifndef BRRR_REQUESTS_H
#define BRRR_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

enum requests_ask { ASK_STOP = 1, ASK_YIELD = 2, ASK_RESUME = 4 };

/* True when the caller may start the agent's thread; then requests_started or requests_ended must follow. */
enum requests_entry { GATE_MINE, GATE_RUNNING, GATE_BUSY };
enum requests_entry requests_enter(void);
void requests_started(void);
void requests_ended(void);

/* Asks the agent's thread and waits for its answer; false: none within `ms`. Without a thread: true. */
bool requests_ask(int what, const char *who, int ms);

/* The agent's thread: what was asked since, and the answer to all of it. */
int requests_asked(char *who, int room, uint64_t *ticket);
void requests_answer(uint64_t ticket);

/* Bits of enum brrr_event for brrr_wait. */
void requests_raise(int bits);

/* Somebody has waited for events: Python's side, which a C++ program has not. */
bool requests_awaited(void);
void requests_forked(void);

#endif
