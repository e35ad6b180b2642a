/* Frames from a monitor into wishes. Agent's thread only. */
#ifndef BRRR_CONTROL_H
#define BRRR_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inbox {
    uint8_t bytes[4096];
    size_t held;
};

/* Acts on the whole frames in `in`. False: this is not our wire, let the monitor go. */
bool control_read(struct inbox *in, int slot);

#endif
