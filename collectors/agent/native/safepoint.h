/* Meets the trainer where it launches nothing, and holds it there for a moment.
 *
 * Kinds switched beside a launching thread kill the trainer: CUPTI 13.0.85 crashed about once in 200
 * times, with and without CUDA graphs, and never in 18,000 times between steps (H200, torch 2.11).
 * So everything but flushing waits for one of these places: between two
 * steps, in the optimizer's hook; between two bytecodes of the main thread, by a pending call of the
 * interpreter, where no step ends for a while; or inside brrr_yield and brrr_stop. A process of whose
 * threads nobody knows which launch is held as a whole, each thread outside CUDA (world.h). */
#ifndef BRRR_SAFEPOINT_H
#define BRRR_SAFEPOINT_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the world may be held: never, where nobody comes by himself for a while, or always, as a
 * thread that comes by tells nothing of the others. */
enum safepoint_world { WORLD_NEVER, WORLD_LAST, WORLD_ONLY };
void safepoint_world(enum safepoint_world when);

/* The present meeting is one with the world. */
bool safepoint_has_world(void);

/* The world was once let go before we were done: nothing is to begin there any more. */
bool safepoint_world_failed(void);

/* Why it was not held at the last try; NULL: it was, or nobody tried. */
const char *safepoint_world_says(void);

/* Agent's thread, as all but the last five. HERE: the trainer is held until safepoint_over. LATER: ask again
 * when safepoint_due says or agent_wake woke. NEVER: it has not come for ten seconds. */
enum meet { MEET_HERE, MEET_LATER, MEET_NEVER };
enum meet safepoint_ask(int64_t now_ns);

/* When to ask again at the latest, monotonic. */
int64_t safepoint_due(int64_t now_ns);

/* The number of the step to meet at, known ahead; safepoint_ask follows. */
void safepoint_arm(uint64_t step);

/* Lets the trainer go on; nobody is asked for any more. */
void safepoint_over(void);

/* For whoever has to go on, at most after `ms`. safepoint_over must follow in any case. */
enum meet safepoint_within(int ms);

/* A step ended: waits here if the agent asks for it. */
void safepoint_step(uint64_t count);

/* The calling thread waits for the agent from the first to the second; if it is the one that steps, or
 * the main one, it counts as met. True: it is. */
bool safepoint_caller(void);
void safepoint_caller_left(void);

/* How long the trainer was held at the longest since the call before; any thread. */
int64_t safepoint_longest_ns(void);

void safepoint_forked(void);

#endif
