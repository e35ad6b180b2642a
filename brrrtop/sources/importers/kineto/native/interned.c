#include "interned.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MOST_TEXTS ((size_t)1 << 31)

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
    return hash ^ (hash >> 29);
}

/* Seeded: nobody can write a trace whose names all share a bucket. */
static uint64_t hash_of(uint64_t seed, const char *text, size_t length) {
    uint64_t hash = mixed(seed, length), word;
    for (; length >= 8; text += 8, length -= 8) {
        memcpy(&word, text, 8);
        hash = mixed(hash, word);
    }
    word = 0;
    if (length) memcpy(&word, text, length);
    hash = mixed(mixed(hash, word), seed);
    return hash ^ (hash >> 32);
}

static bool grown(void **array, size_t count, size_t size) {
    void *larger = realloc(*array, count * size);
    if (larger) *array = larger;
    return larger != NULL;
}

static bool more_buckets(struct interned *all) {
    size_t count = all->bucket_count ? 2 * all->bucket_count : 1024;
    uint32_t *buckets = calloc(count, sizeof *buckets);
    if (!buckets) return false;
    for (size_t number = 0; number < all->count; number++) {
        size_t at = all->hashes[number] & (count - 1);
        while (buckets[at]) at = (at + 1) & (count - 1);
        buckets[at] = (uint32_t)number + 1;
    }
    free(all->buckets);
    all->buckets = buckets;
    all->bucket_count = count;
    return true;
}

static bool room_for(struct interned *all, size_t length) {
    if (all->count >= MOST_TEXTS) return false;
    if (all->count == all->most) {
        size_t most = all->most ? 2 * all->most : 512;
        if (!grown((void **)&all->hashes, most, sizeof *all->hashes) ||
            !grown((void **)&all->ends, most, sizeof *all->ends))
            return false;
        all->most = most;
    }
    if (length > all->most_bytes - all->used_bytes) {
        size_t most = 2 * all->most_bytes + length + 4096;
        if (!grown((void **)&all->bytes, most, 1)) return false;
        all->most_bytes = most;
    }
    return 2 * all->count < all->bucket_count || more_buckets(all);
}

int64_t interned_number(struct interned *all, const char *text, size_t length) {
    uint64_t hash = hash_of(all->seed, text, length);
    if (all->bucket_count) {
        for (size_t at = hash & (all->bucket_count - 1); all->buckets[at];
             at = (at + 1) & (all->bucket_count - 1)) {
            size_t number = all->buckets[at] - 1, size;
            if (all->hashes[number] != hash) continue;
            const char *known = interned_text(all, number, &size);
            if (size == length && memcmp(known, text, length) == 0) return (int64_t)number;
        }
    }
    if (!room_for(all, length)) return -1;
    size_t number = all->count, at = hash & (all->bucket_count - 1);
    if (length) memcpy(all->bytes + all->used_bytes, text, length);
    all->used_bytes += length;
    all->hashes[number] = hash;
    all->ends[number] = all->used_bytes;
    all->count++;
    while (all->buckets[at]) at = (at + 1) & (all->bucket_count - 1);
    all->buckets[at] = (uint32_t)number + 1;
    return (int64_t)number;
}

const char *interned_text(const struct interned *all, size_t number, size_t *length) {
    size_t start = number ? all->ends[number - 1] : 0;
    *length = all->ends[number] - start;
    return all->bytes + start;
}

void interned_free(struct interned *all) {
    free(all->buckets);
    free(all->hashes);
    free(all->ends);
    free(all->bytes);
}
