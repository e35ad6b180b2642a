/* Frames from other threads of the trainer, on their way to the agent's. */
#ifndef BRRR_INBOX_H
#define BRRR_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct parcel {
    struct parcel *next;
    uint32_t bytes, records;
    uint16_t kind;
    char payload[]; /* a zero byte follows */
};

/* False: full, or no memory. Any thread. */
bool inbox_put(uint16_t kind, const void *payload, uint32_t bytes, uint32_t records);

/* All that is waiting, oldest first; the caller frees each. */
struct parcel *inbox_take(void);
void inbox_forked(void);

#endif
