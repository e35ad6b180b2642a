/* The options text of brrr_start. */
#ifndef BRRR_OPTIONS_H
#define BRRR_OPTIONS_H

#include <stdint.h>

struct options {
    uint32_t buffer_bytes, max_buffers, pool_limit, outbox_bytes;
    uint32_t idle_retract_ms, drain_ms, flush_ms;
    uint32_t require_context, demangle;
    char cupti[400]; /* a libcupti for a process that has mapped none; empty: none */
};

/* 0, or a negative enum brrr_code with its sentence. */
int options_read(const char *text, struct options *out);

#endif
