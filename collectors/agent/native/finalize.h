/* Taking CUPTI out of the launch path between bursts, where that is safe. */
#ifndef BRRR_FINALIZE_H
#define BRRR_FINALIZE_H

#include <stdbool.h>

#include "cupti.h"

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

void finalize_forked(void);

#endif
