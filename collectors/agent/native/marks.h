/* A bounded ring of marks: many threads put, the agent's thread takes. Nobody waits. */
#ifndef BRRR_MARKS_H
#define BRRR_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

/* Empties the ring of what a fork left half done in it. With no marks under way. */
void marks_begin(void);

/* The child of a fork: the ring is left as it is, 786 KB that nobody there may want; marks_begin
 * makes it good. */
void marks_forked(void);

/* False: the ring is full and the mark is lost (counted). */
bool marks_put(const struct wire_mark *mark);
bool marks_take(struct wire_mark *out);
uint64_t marks_lost(void);

#endif
