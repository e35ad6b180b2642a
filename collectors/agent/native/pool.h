/* The buffers CUPTI writes records into. CUPTI's side takes no lock and never waits. */
#ifndef BRRR_POOL_H
#define BRRR_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void pool_configure(size_t buffer_bytes, uint32_t max_buffers);
/* API 27 and newer survive being given no buffer. */
void pool_allow_null(bool allowed);

/* The callbacks of cuptiActivityRegisterCallbacks. */
void pool_request(uint8_t **buffer, size_t *size, size_t *max_records);
void pool_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid);

/* With nobody to read them, full buffers go straight back to the free ones. */
void pool_attended(bool attended);

/* Maps and touches `count` buffers ahead, so that no launch pays for it. */
void pool_warm(uint32_t count);

/* Gives the memory of free buffers back to the system; they stay usable. */
void pool_trim(void);

/* The oldest buffer that came back, or -1. Give it back with pool_recycle. */
int pool_take(const uint8_t **buffer, size_t *valid);
void pool_recycle(int slot);

/* CLOCK_REALTIME when the buffer that has been out longest was handed out; INT64_MAX: none is. */
int64_t pool_lent_since_ns(void);

struct pool_counts {
    uint64_t requests, foreign, refused;
    uint64_t mapped_bytes;
    uint32_t lent;
};
void pool_count(struct pool_counts *out);

/* True once after the cap was reached: tracing must pause. */
bool pool_pressed(void);

/* The child of a fork: nothing is lent there. */
void pool_forked(void);

#endif
