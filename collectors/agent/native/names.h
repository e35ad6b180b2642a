/* Names by number: each text once, rows dense from 1; an id is the row and, above its 16 bits, the edition
 * of the table. Any thread may add; all of them go at once. */
#ifndef BRRR_NAMES_H
#define BRRR_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NAME_LONGEST 4095

/* The id of the text; 0 when it is empty or the table is full (counted). */
uint32_t names_add(const char *text, size_t bytes);

/* The id of a kernel's name, demangled where the process has a demangler; 0 when the memory is gone. */
uint32_t names_add_kernel(const char *mangled);

/* Looks again: what has a demangler may have been loaded since. */
void names_find_demangler(void);

struct name_counts {
    uint32_t last; /* row */
    uint64_t refused, bytes;
    bool crowded; /* more than half full: time for a new table as soon as nobody has been told of this one */
};
struct name_counts names_count(void);

/* Forgets every name. Ids given out before mean nothing from here on. Agent's thread, no monitor. */
void names_begin_anew(void);

/* A NAMES payload of rows `first`.. that fits `room`; `*last` is the last row in it. Returns its bytes. */
size_t names_write(uint32_t first, uint8_t *out, size_t room, uint32_t *last);

/* The child of a fork: the table is left to its fate and a new one begins. */
void names_forked(void);

#endif
