/* Turning CUPTI's kinds on and off, taking it out of the launch path where that is safe, and leaving it as
 * it was found. Agent's thread only, while the trainer is held (safepoint.h), but for what only asks. */
#ifndef BRRR_SWITCH_H
#define BRRR_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cupti.h"

/* True: kernels, copies and memsets are on, and calls of each API that is asked for. False: nothing of
 * ours is; the code is that of the call that failed. */
bool switch_on(const struct cupti *cupti, bool runtime, bool driver, int *code);

/* Takes or leaves the calls of the driver's API while the rest is on; whether they are taken then. */
bool switch_driver(const struct cupti *cupti, bool take);

/* Whether this kind is on by us. */
bool switch_takes(uint32_t kind);

/* Turns off what this agent turned on, and nothing else. */
/* False: the trainer was let go meanwhile, so that some may still be on. */
bool switch_off(const struct cupti *cupti);

/* Gives back the attributes that were changed, if any were. */
bool switch_changed(void);
void switch_restore(const struct cupti *cupti);

/* Whether the trainer may hold CUDA graphs (any thread). True is for good, and comes back only when
 * no take-out is under way any more; false counts until somebody says true. */
void finalize_graphs(bool may_exist);

/* Another profiler has set CUPTI up for the life of the process: it is not ours to take out any more. */
void finalize_never(void);

/* The records have shown one: tells nothing of who launches. */
void graphs_seen(void);

/* The trainer's torch has said whether there may be any, and so tells where nothing is launched. */
bool graphs_told(void);

/* Somebody looked and found none, and none was heard of since. */
bool graphs_ruled_out(void);
/* One was found, captured or replayed. */
bool graphs_possible(void);

/* Agent's thread, everything off and drained: finalizes CUPTI if no graph can exist. True: it is out. */
bool takeout(const struct cupti *cupti);

/* The callbacks may be somebody else's by now: register again at the next switch_on. */
void switch_forget(void);
void switch_forked(void);

#endif
