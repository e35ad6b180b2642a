/* The frames of brrrtop/protocol/frames.py, byte for byte. */
#ifndef BRRR_WIRE_H
#define BRRR_WIRE_H

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
    OP_STACKS = 6,     /* a: 0 or 1 */
    OP_KINDS = 7,      /* a: bits of enum want */
    OP_SHAPES = 8      /* the ops of one step, with their shapes */
};

enum want {
    WANT_KERNELS = 1,
    WANT_COPIES = 2,
    WANT_LAUNCHES = 4,
    WANT_SYNCS = 8,
    WANT_ALLOCS = 16,
    WANT_DEFAULT = 15,
    WANT_GRAPHS = 32, /* trace although nobody can tell where the trainer launches */
    WANT_HOLDS = 64   /* so without torch: all of it is held at each switch */
};

_Static_assert(sizeof(struct wire_header) == 16, "header");
_Static_assert(sizeof(struct wire_kernel) == 80, "kernel");
_Static_assert(sizeof(struct wire_copy) == 48, "copy");
_Static_assert(sizeof(struct wire_call) == 32, "call");
_Static_assert(sizeof(struct wire_mark) == 40, "mark");
_Static_assert(sizeof(struct wire_observed) == 24, "observed");
_Static_assert(sizeof(struct wire_control) == 24, "control");

#endif
