/* Texts as small numbers, in order of appearance; kept until the whole is freed. */
#ifndef BRRR_INTERNED_H
#define BRRR_INTERNED_H

#include <stddef.h>
#include <stdint.h>

struct interned {
    uint64_t seed;
    uint32_t *buckets; /* number + 1; 0: free */
    uint64_t *hashes;
    size_t *ends; /* in `bytes`, one a text */
    char *bytes;
    size_t bucket_count, count, most, used_bytes, most_bytes;
};

/* Number of the text; -1: no memory, or 2^31 texts. */
int64_t interned_number(struct interned *all, const char *text, size_t length);
const char *interned_text(const struct interned *all, size_t number, size_t *length);
void interned_free(struct interned *all);

#endif
