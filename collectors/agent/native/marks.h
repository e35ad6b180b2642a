/* A bounded ring of marks: many threads put, the agent's thread takes. Nobody waits. */
#ifndef BRRR_MARKS_H
#define BRRR_MARKS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire.h"

void marks_init(void);

/* False: the ring is full and the mark is lost (counted). */
bool marks_put(const struct wire_mark *mark);
bool marks_take(struct wire_mark *out);
uint64_t marks_lost(void);

#endif
