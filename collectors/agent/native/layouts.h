/* Where CUPTI keeps the fields of its activity records, and how long each record is.
 *
 * Records only grow at their end: every offset here holds from CUPTI 12.1 to 13.5 (checked in
 * the tests against the layouts cupti-python publishes). Only the strides differ.
 */
#ifndef BRRR_LAYOUTS_H
#define BRRR_LAYOUTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum activity_kind {
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_KERNEL = 3,
    KIND_DRIVER = 4,
    KIND_RUNTIME = 5,
    KIND_CONCURRENT_KERNEL = 10,
    KIND_MEMCPY2 = 22,
    KIND_LIMIT = 64 /* larger kinds are unknown here */
};

enum kernel_at {
    KERNEL_REGISTERS = 6, /* u16 */
    KERNEL_START = 16,
    KERNEL_END = 24,
    KERNEL_DEVICE = 40,
    KERNEL_STREAM = 48,
    KERNEL_GRID = 52,  /* 3 x i32 */
    KERNEL_BLOCK = 64, /* 3 x i32 */
    KERNEL_SHARED_STATIC = 76,
    KERNEL_SHARED_DYNAMIC = 80,
    KERNEL_CORRELATION = 92,
    KERNEL_NAME = 104, /* const char * */
    KERNEL_GRAPH_NODE = 144,
    KERNEL_GRAPH = 156,
    KERNEL_CHANNEL = 168,
    KERNEL_LEAST_BYTES = 208
};

enum copy_at { /* memcpy, peer to peer (MEMCPY2) and memset */
    COPY_BYTES = 8,
    COPY_START = 16,
    COPY_END = 24,
    COPY_DEVICE = 32,
    COPY_STREAM = 40,
    COPY_CORRELATION = 44,
    COPY_GRAPH = 72,
    COPY_LEAST_BYTES = 88,
    PEER_CORRELATION = 60,
    PEER_GRAPH = 80,
    PEER_LEAST_BYTES = 96,
    MEMCPY_KIND = 4,
    MEMCPY_SRC = 5,
    MEMCPY_DST = 6,
    MEMCPY_FLAGS = 7,
    MEMSET_MEMORY = 50 /* u16 */
};

enum api_at {
    API_CBID = 4,
    API_START = 8,
    API_END = 16,
    API_THREAD = 28,
    API_CORRELATION = 32,
    API_RESULT = 36,
    API_LEAST_BYTES = 40
};

struct strides {
    uint32_t bytes[KIND_LIMIT]; /* 0: unknown */
    const char *source;         /* "learned" from the library itself, or from the "table" of versions */
};

/* `next` is cuptiActivityGetNextRecord or NULL; `version` is what cuptiGetVersion said.
 * False: no usable length for kernels, copies, memsets and calls. */
typedef int (*next_record_fn)(uint8_t *buffer, size_t valid, void **record);
bool strides_find(struct strides *out, next_record_fn next, uint32_t version);

#endif
