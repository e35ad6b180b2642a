/* Taking CUPTI out of the launch path between bursts, where that is safe. */
#ifndef BRRR_TAKEOUT_H
#define BRRR_TAKEOUT_H

#include <stdbool.h>

#include "cupti.h"

/* Whether the trainer may hold CUDA graphs (any thread). True is for good, and comes back only when
 * no take-out is under way any more; false counts until somebody says true. */
void takeout_graphs(bool may_exist);

/* Agent's thread, everything off and drained: finalizes CUPTI if no graph can exist. True: it is out. */
bool takeout(const struct cupti *cupti);

void takeout_forked(void);

#endif
