/* The way of a record: out of CUPTI's buffers, into frames, to the monitors. */
#pragma once

#include <poll.h>

#include "base.h"
#include "wire.h"

/* Where CUPTI keeps the fields of its activity records, and how long each record is.
 *
 * Records only grow at their end: every offset here holds from CUPTI 12.1 to 13.5 (checked in
 * the tests against the layouts cupti-python publishes). Only the strides differ.
 */

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
};

/* The CUDA calls worth a row on the host's side, by callback id and why. */

struct call {
    uint16_t cbid;
    uint8_t driver; /* 0: runtime, 1: driver */
    enum call_class call_class;
    const char *name;
};
#define CALL_IDS 1024
extern const struct call CALLS[];
extern const size_t CALL_COUNT;

/* Interns the names. Once, from the agent's thread. */
void calls_name(void);

/* One CUPTI buffer into wire records. Agent's thread only. */

struct record_counts {
    uint64_t kernels, copies, calls;
    uint64_t launches;         /* launch rows that queued one kernel each */
    uint64_t launched_kernels; /* kernels outside graphs */
    uint64_t graph_kernels, graph_launches;
    uint64_t zero_timestamps, zero_in_graphs;
    uint64_t wrong_clock;      /* records hours away from the trainer's clock */
    uint64_t unknown_kinds;    /* records of unknown length: the rest of their buffers is lost */
    uint32_t last_launch;
};
extern struct record_counts records_seen;

/* Times outside [earliest, latest] are not of this clock. */
void records_bounds(int64_t earliest_ns, int64_t latest_ns);

/* Forgets which address held which name: a module may have been unloaded. */
void records_forget_names(void);

/* Whether each launch that was seen `since` has its kernel. Beside `graphs` only their numbers can be
 * compared: a launch that is captured has none. */
bool records_arrived(const struct record_counts *since, bool graphs);

void records_buffer(const struct strides *strides, const uint8_t *buffer, size_t valid);

/* Which spans of device time were traced without a hole. Agent's thread only. */

void coverage_begin(int64_t enabled_ns);
void coverage_add(uint32_t device, uint32_t stream, int64_t start_ns, int64_t end_ns);

/* While tracing goes on: everything launched before `launched_ns` has arrived. */
void coverage_advance(int64_t launched_ns);

/* Tracing stopped for launches after `stopped_ns`; `whole`: every record of those before arrived. */
void coverage_end(int64_t stopped_ns, bool whole);

/* Something of the span under way was lost: its next frame says so. */
void coverage_taint(void);

/* Whether a device ran without a gap worth the name, as far as was seen. */
bool coverage_dense(void);

/* Names by number: each text once, rows dense from 1; an id is the row and, above its 16 bits, the edition
 * of the table. Any thread may add; all of them go at once. */

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

/* The buffers CUPTI writes records into. CUPTI's side takes no lock and never waits. */

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

/* Since the process began. */
extern struct pool_counts {
    _Atomic uint64_t requests, foreign, refused, mapped_bytes;
} pool_counts;

/* True once after the cap was reached: tracing must pause. */
bool pool_pressed(void);

/* What other threads of the trainer hand to the agent's: frames, and marks in a bounded ring. Nobody waits. */

struct parcel {
    struct parcel *next;
    uint32_t bytes, records;
    uint16_t kind;
    char payload[]; /* a zero byte follows */
};

/* False: full, or no memory. Any thread. */
bool inbox_put(uint16_t kind, const void *payload, uint32_t bytes, uint32_t records);

/* All that is waiting, oldest first; the caller frees each. */
struct parcel *inbox_take(void);

/* Empties the ring of what a fork left half done in it. With no marks under way. */
void marks_begin(void);

/* False: the ring is full and the mark is lost (counted). */
bool marks_put(const struct wire_mark *mark);
bool marks_take(struct wire_mark *out);
uint64_t marks_lost(void);

/* Records become frames, and frames are on their way to monitors: one lane a kind, filled in place and
 * broadcast when full; shared blocks, one bounded queue a monitor. Agent's thread only. */

#define QUEUE_ROOM 2048u

/* One frame. `refs` counts the queues it is in, and its maker while it is being filled. */
struct block {
    uint32_t refs, records;
    size_t room, bytes; /* of data, header included */
    uint8_t data[];
};

struct queue {
    struct block *ring[QUEUE_ROOM];
    uint32_t head, count;
    size_t sent;        /* bytes of the first block that are gone */
    size_t bytes;       /* still to send */
};

/* A frame with room for `payload` bytes, or NULL. `urgent` frames may use a reserve beyond the limit:
 * names, observed spans, losses and status make sense of everything else. */
struct block *block_new(uint16_t kind, size_t payload, bool urgent);
void block_drop(struct block *block);

/* Writes the header: the payload is complete with `bytes` in all. */
void block_seal(struct block *block, size_t bytes, uint32_t records);

/* False: the queue is full. On true the queue holds a reference of its own. */
bool queue_put(struct queue *queue, struct block *block, size_t limit);

/* Sends what the socket takes. 0 all gone, 1 some left, -1 the other side is gone. */
int queue_send(struct queue *queue, int fd, bool *moved);
void queue_clear(struct queue *queue);

uint64_t outbox_bytes(void);
extern uint64_t outbox_lost; /* records that found no room here, or in the queue of some monitor */

enum lane_id { LANE_KERNELS, LANE_COPIES, LANE_CALLS, LANE_MARKS, LANE_COUNT };

struct lane {
    uint8_t *at;
    size_t left;
    struct block *block;
};
extern struct lane lanes[LANE_COUNT];

/* Where the next record goes, or NULL: nobody listens, or there is no room (counted as lost). */
void *lane_open(enum lane_id id, uint32_t bytes);

static inline void *lane_next(enum lane_id id, uint32_t bytes)
{
    struct lane *lane = &lanes[id];
    if (lane->left < bytes)
        return lane_open(id, bytes);
    void *place = lane->at;
    lane->at += bytes;
    lane->left -= bytes;
    return place;
}

void lanes_flush(void);

/* The socket monitors connect to, and what each of them still has to be sent. Agent's thread only,
 * but for server_clients. */

#define CLIENTS 4
#define SERVER_FDS (CLIENTS + 1)

/* 0, or a negative enum brrr_code with its sentence. Any thread, before the agent's starts. */
int server_open(const char *path);

/* Fills `fds` for poll and later acts on them. Returns when to ask again though nothing came; INT64_MAX: never. */
int64_t server_watch(struct pollfd *fds, int64_t now_ns);
void server_serve(const struct pollfd *fds, int64_t now_ns);

/* False: the trainer has closed the socket we listen on. */
bool server_listens(void);
int server_clients(void);

/* Sends a filled frame to every monitor, names it may use first. */
void server_broadcast(struct block *block);

/* A frame whose loss is counted as `records`, to the monitor in `slot` or to all; `urgent` as in block_new. */
#define EVERYBODY (-1)
void server_send(int slot, uint16_t kind, const void *payload, size_t bytes, uint32_t records, bool urgent);

/* A span of device time, marked per monitor by what that monitor did not get. */
void server_observed(const struct wire_observed *observed);

/* What the monitors want, all together. True: it may be news, as one came, went, or changed its mind. */
bool server_wishes(bool *continuous, uint32_t *allowed);

/* Says goodbye, tries to send what is left for `patience_ms`, closes, removes the socket. */
void server_close(const char *reason, int patience_ms);

/* What the agent says of itself: hello, status, losses. Agent's thread only. */

/* Remembers a HELLO, in place of the one before, or a DEVICE, for monitors that come later (copied). */
bool report_keep(uint16_t kind, const char *json);

/* Everything a new monitor must know first. */
void report_welcome(int slot);

/* LAUNCHES_UNASKED: this CUPTI cannot tell them. LAUNCHES_SOME: a kernel lacks the row of its launch. */
enum launches { LAUNCHES_UNASKED, LAUNCHES_SOME, LAUNCHES_ALL };

struct burst {
    uint64_t kernels, steps;
    bool whole;             /* every kernel came */
    bool all_threads;       /* were held for each switch */
    enum launches launches; /* whether the row of its launch did too */
    int64_t out_ns, on_ns, off_ns; /* held so long: to take CUPTI out after the burst before, to begin, to end */
};

/* To one monitor, or to EVERYBODY; a burst that ended, or NULL. */
void report_status(int slot, const struct burst *burst);

/* The totals of what was lost, when they changed; at most once a second. */
void report_losses(int64_t now_ns);
uint64_t report_lost(void);
