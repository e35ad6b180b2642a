/* What other threads of the trainer hand to the agent's: frames, and marks in a bounded ring. Nobody waits. */
#ifndef BRRR_INBOX_H
#define BRRR_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

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

/* The child of a fork: the ring of marks is left as it is, 786 KB that nobody there may want; marks_begin
 * makes it good. */
void inbox_forked(void);

/* Empties the ring of what a fork left half done in it. With no marks under way. */
void marks_begin(void);

/* False: the ring is full and the mark is lost (counted). */
bool marks_put(const struct wire_mark *mark);
bool marks_take(struct wire_mark *out);
uint64_t marks_lost(void);

#endif
