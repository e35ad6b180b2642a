/* The frames of collectors/protocol/frames.py, byte for byte. */
#pragma once

#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire is little-endian and written without conversion"
#endif

#define WIRE_VERSION 1

enum wire_kind {
    WIRE_HELLO = 1,
    WIRE_NAMES = 2,
    WIRE_DEVICE = 3,
    WIRE_KERNELS = 4,
    WIRE_COPIES = 5,
    WIRE_CALLS = 6,
    WIRE_MARKS = 7,
    WIRE_OBSERVED = 11,
    WIRE_LOSS = 12,
    WIRE_STATUS = 13,
    WIRE_END = 14,
    WIRE_CONTROL = 64
};

enum call_class {
    CALL_OTHER,
    CALL_LAUNCH,
    CALL_GRAPH_LAUNCH,
    CALL_SYNC,
    CALL_ALLOC,
    CALL_COPY,
    CALL_EVENT,
    CALL_MODULE
};

enum { MARK_STEP = 1, MARK_GC = 4 };
enum { CALL_FLAG_DRIVER = 1, CALL_FLAG_FAILED = 2 };
enum { OBSERVED_LOSSY = 1 };

struct wire_header {
    uint32_t bytes;
    uint16_t kind, flags;
    int64_t sent_ns;
} __attribute__((packed));

struct wire_kernel {
    int64_t start_ns, end_ns;
    uint32_t correlation, name_id;
    int32_t device;
    uint32_t stream;
    int32_t grid[3], block[3];
    uint32_t shared_bytes;
    uint16_t registers, flags;
    uint32_t graph, channel;
    uint64_t graph_node;
} __attribute__((packed));

struct wire_copy {
    int64_t start_ns, end_ns, size_bytes;
    uint32_t correlation;
    int32_t device;
    uint32_t stream;
    uint8_t copy_kind, src_kind, dst_kind, flags;
    uint32_t graph, reserved;
} __attribute__((packed));

struct wire_call {
    int64_t start_ns, end_ns;
    uint32_t correlation, tid, name_id;
    uint16_t call_class, flags;
} __attribute__((packed));

struct wire_mark {
    int64_t start_ns, end_ns, value;
    uint32_t tid, name_id;
    uint16_t mark_class, flags;
    uint32_t reserved;
} __attribute__((packed));

struct wire_observed {
    int64_t start_ns, end_ns;
    int32_t device;
    uint32_t flags;
} __attribute__((packed));

struct wire_control {
    uint32_t op, flags;
    int64_t a, b;
} __attribute__((packed));

enum control_op {
    OP_BURST = 1,      /* a: whole steps, b: longest time in ns */
    OP_BURST_END = 2,
    OP_CONTINUOUS = 3, /* a: 0 or 1 */
    OP_DETACH = 4,
    OP_PING = 5,
    OP_KINDS = 7,      /* a: bits of enum allowed */
    OP_SHAPES = 8,     /* the ops of one step, with their shapes */
    OP_REST = 9        /* no stack samples for a while */
};

/* What a person allowed; the lower bits, kernels, copies and calls, are always traced. */
enum allowed {
    ALLOWED_GRAPHS = 32, /* trace although nobody can tell where the trainer launches */
    ALLOWED_HOLDS = 64   /* so without torch: all of it is held at each switch */
};

/* Where kernel tracing stands, for programs: the `code` beside a status frame's sentence. The monitor
 * decides by it alone (`StatusCode` in collectors/vocabulary.py), so no value changes its meaning. */
#define STATUS_CODES(X)                                                                            \
    X(CODE_READY, "ready")                                                                         \
    X(CODE_TRACING, "tracing")                                                                     \
    X(CODE_GPU_UNTOUCHED, "gpu-untouched")     /* no CUDA context yet */                           \
    X(CODE_NO_CALLS, "no-calls")               /* ready, without launches: an old CUPTI */         \
    X(CODE_GRAPHS_UNKNOWN, "graphs-unknown")   /* ready, and held back until somebody knows */     \
    X(CODE_NO_PAUSE, "no-pause")               /* ready, and never outside CUDA */                 \
    X(CODE_NO_STEP, "no-step")                 /* ready, and no step ends */                       \
    X(CODE_UNREADABLE, "unreadable")           /* the process cannot be looked through */          \
    X(CODE_NO_CUPTI, "no-cupti")                                                                   \
    X(CODE_TWO_CUPTIS, "two-cuptis")                                                               \
    X(CODE_CUPTI_UNUSABLE, "cupti-unusable")   /* it does not load, or is of another layout */     \
    X(CODE_OTHER_TOOL, "other-tool")           /* nsys, ncu, compute-sanitizer */                  \
    X(CODE_PROFILER_RECORDS, "profiler-records") /* torch's own has its turn */                    \
    X(CODE_CUPTI_TAKEN, "cupti-taken")         /* another profiler has subscribed */               \
    X(CODE_NO_RECORDS, "no-records")           /* another profiler has the callbacks */            \
    X(CODE_RECORDS_HELD, "records-held")       /* CUPTI has them, and gives none back */           \
    X(CODE_NOT_PERMITTED, "not-permitted")                                                         \
    X(CODE_CUPTI_FAILED, "cupti-failed")                                                           \
    X(CODE_GRAPH_TIMES, "graph-times")         /* CUPTI loses times inside CUDA graphs */          \
    X(CODE_CUPTI_SLOW, "cupti-slow")           /* threads cannot be held for so long */

#define ENUM_NAME(name, text) name,
enum status_code { STATUS_CODES(ENUM_NAME) };

#define SIZE(name, bytes) _Static_assert(sizeof(struct wire_##name) == (bytes), #name);
SIZE(header, 16) SIZE(kernel, 80) SIZE(copy, 48) SIZE(call, 32) SIZE(mark, 40) SIZE(observed, 24) SIZE(control, 24)
#undef SIZE
