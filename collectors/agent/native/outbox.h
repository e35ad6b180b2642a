/* Frames on their way to monitors: shared blocks, one bounded queue a monitor. Agent's thread only. */
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

void outbox_limit(size_t bytes);

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
size_t outbox_limit_bytes(void);
void outbox_forked(void);

#endif
