/* Records become frames: one lane a kind, filled in place and broadcast when full. Agent's thread only. */
#ifndef BRRR_FRAME_BUILDER_H
#define BRRR_FRAME_BUILDER_H

#include <stddef.h>
#include <stdint.h>

#include "wire.h"

enum lane_id { LANE_KERNELS, LANE_COPIES, LANE_CALLS, LANE_MARKS, LANE_COUNT };

struct lane {
    uint8_t *at;
    size_t left;
    struct block *block;
};
extern struct lane lanes[LANE_COUNT];

/* Where the next record goes, or NULL: nobody listens, or there is no room (counted as lost). */
void *lane_open(enum lane_id id, uint32_t bytes);

static inline void *lane_next(enum lane_id id, uint32_t bytes)
{
    struct lane *lane = &lanes[id];
    if (lane->left < bytes)
        return lane_open(id, bytes);
    void *place = lane->at;
    lane->at += bytes;
    lane->left -= bytes;
    return place;
}

/* Sends what the lanes hold. */
void frame_builder_flush(void);

/* Records that found no room in the outbox at all. */
uint64_t frame_builder_lost(void);
void frame_builder_forked(void);

#endif
