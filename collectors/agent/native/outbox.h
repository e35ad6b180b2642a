/* Records become frames, and frames are on their way to monitors: one lane a kind, filled in place and
 * broadcast when full; shared blocks, one bounded queue a monitor. Agent's thread only. */
#ifndef BRRR_OUTBOX_H
#define BRRR_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

#define QUEUE_ROOM 2048u

/* One frame. `refs` counts the queues it is in, and its maker while it is being filled. */
struct block {
    uint32_t refs, records;
    size_t room, bytes; /* of data, header included */
    uint8_t data[];
};

struct queue {
    struct block *ring[QUEUE_ROOM];
    uint32_t head, count;
    size_t sent;        /* bytes of the first block that are gone */
    size_t bytes;       /* still to send */
};

/* A frame with room for `payload` bytes, or NULL. `urgent` frames may use a reserve beyond the limit:
 * names, observed spans, losses and status make sense of everything else. */
struct block *block_new(uint16_t kind, size_t payload, bool urgent);
void block_drop(struct block *block);

/* Writes the header: the payload is complete with `bytes` in all. */
void block_seal(struct block *block, size_t bytes, uint32_t records);

/* False: the queue is full. On true the queue holds a reference of its own. */
bool queue_put(struct queue *queue, struct block *block, size_t limit);

/* Sends what the socket takes. 0 all gone, 1 some left, -1 the other side is gone. */
int queue_send(struct queue *queue, int fd, bool *moved);
void queue_clear(struct queue *queue);

uint64_t outbox_bytes(void);
void outbox_forked(void);

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
void lanes_flush(void);

/* Records that found no room in the outbox at all. */
uint64_t lanes_lost(void);

#endif
