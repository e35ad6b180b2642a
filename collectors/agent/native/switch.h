/* Turning CUPTI's kinds on and off, and leaving it as it was found. Agent's thread only, while the
 * trainer is held (meet.h), but for what only asks. */
#ifndef BRRR_SWITCH_H
#define BRRR_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

#include "cupti.h"

/* True: what `want` asks for is on, calls of each API only where it says so. False: nothing of
 * ours is; the code is that of the call that failed. */
struct switches {
    uint32_t want;
    bool runtime, driver;
    uint32_t pool_limit;
};
bool switch_on(const struct cupti *cupti, const struct switches *what, int *code);

/* Takes or leaves the calls of the driver's API while the rest is on; whether they are taken then. */
bool switch_driver(const struct cupti *cupti, uint32_t want, bool take);

/* Whether this kind is on by us. */
bool switch_takes(uint32_t kind);

/* Turns off what this agent turned on, and nothing else. */
void switch_off(const struct cupti *cupti);

/* Gives back the attributes that were changed, if any were. */
bool switch_changed(void);
void switch_restore(const struct cupti *cupti);

/* Takes CUPTI out of the launch path, which a disabled kind alone does not: 0.5 us a launch stay
 * (H200, CUPTI 13.0). Only with nothing on, everything drained, and no CUDA graph in the process:
 * a replay that runs meanwhile fails (benchmarks/lab, `graphs`). True: it is out. */
bool switch_finalize(const struct cupti *cupti);

/* The callbacks may be somebody else's by now: register again at the next switch_on. */
void switch_forget(void);
void switch_forked(void);

#endif
