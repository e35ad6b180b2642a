/* Names by number: each text once, ids dense from 1. Any thread may add; nobody removes. */
#ifndef BRRR_NAMES_H
#define BRRR_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define NAME_LONGEST 4095

/* The id of the text; 0 when it is empty or the table is full (counted). */
uint32_t names_add(const char *text, size_t bytes);

/* The id of a kernel's name, demangled where the process has a demangler; 0 when the memory is gone. */
uint32_t names_add_kernel(const char *mangled);

void names_use_demangler(int wanted);

/* Looks again: what has a demangler may have been loaded since. */
void names_find_demangler(void);

uint32_t names_last(void);
uint64_t names_refused(void);
uint64_t names_bytes(void);

/* A NAMES payload of ids `first`.. that fits `room`; `*last` is the last id in it. Returns its bytes. */
size_t names_write(uint32_t first, uint8_t *out, size_t room, uint32_t *last);

/* The child of a fork: the table is left to its fate and a new one begins. */
void names_forked(void);

#endif
