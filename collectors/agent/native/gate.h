/* Where the trainer's threads and the agent's meet: requests, answers, events. */
#ifndef BRRR_GATE_H
#define BRRR_GATE_H

#include <stdbool.h>
#include <stdint.h>

enum gate_ask { ASK_STOP = 1, ASK_YIELD = 2, ASK_RESUME = 4 };

/* True when the caller may start the agent's thread; then gate_started or gate_ended must follow. */
enum gate_entry { GATE_MINE, GATE_RUNNING, GATE_BUSY };
enum gate_entry gate_enter(void);
void gate_started(void);
void gate_ended(void);

/* Asks the agent's thread and waits for its answer; false: none within `ms`. Without a thread: true. */
bool gate_ask(int what, const char *who, int ms);

/* The agent's thread: what was asked since, and the answer to all of it. */
int gate_asked(char *who, int room, uint64_t *ticket);
void gate_answer(uint64_t ticket);

/* Events for brrr_wait. */
void gate_raise(int bits);
int gate_wait(int timeout_ms);
void gate_forked(void);

#endif
