/* Which code of this process is CUDA's, which is the C library's. */
#ifndef BRRR_WORLD_LAYOUT_H
#define BRRR_WORLD_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#define CODE_RANGES 64

struct code_ranges {
    uint64_t least, most; /* around all of them */
    uint32_t count;
    struct {
        uint64_t start, end;
    } of[CODE_RANGES];
};

struct world_layout {
    struct code_ranges cuda;   /* the driver, the runtime, CUPTI */
    struct code_ranges system; /* C library, linker, allocators, this library: may hold locks that we need */
};

/* False: more than there is room for. */
bool world_layout_read(struct world_layout *out);

static inline bool code_in(const struct code_ranges *ranges, uint64_t address)
{
    if (address < ranges->least || address >= ranges->most)
        return false;
    for (uint32_t i = 0; i < ranges->count; i++)
        if (address >= ranges->of[i].start && address < ranges->of[i].end)
            return true;
    return false;
}

#endif
