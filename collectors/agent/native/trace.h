/* When activity is traced, and how the trainer is met for it. */
#pragma once

#include "records.h"

/* Where the trainer's threads and the agent's meet: requests, answers, events. */

enum requests_ask { ASK_STOP = 1, ASK_YIELD = 2, ASK_RESUME = 4 };

/* GATE_MINE: the caller may start the agent's thread; then requests_started or requests_ended must follow. */
enum requests_entry { GATE_MINE, GATE_RUNNING, GATE_BUSY };
enum requests_entry requests_enter(void);
void requests_started(void);
void requests_ended(void);

/* Asks the agent's thread and waits for its answer; false: none within `ms`. Without a thread: true. */
bool requests_ask(int what, const char *who, int ms);

/* The agent's thread: what was asked since, and the answer to all of it. */
int requests_asked(char *who, int room, uint64_t *ticket);
void requests_answer(uint64_t ticket);

/* Bits of enum brrr_event for brrr_wait. */
void requests_raise(int bits);

/* Somebody has waited for events: Python's side, which a C++ program has not. */
bool requests_awaited(void);

/* Where tracing stands. Its name is what the monitors see. */
#define TRACE_STATES(X)                                                                            \
    X(TRACE_WAITING, "waiting")  /* no CUDA context yet */                                         \
    X(TRACE_ABSENT, "absent")    /* no libcupti yet */                                             \
    X(TRACE_READY, "ready")                                                                        \
    X(TRACE_TRACING, "tracing")                                                                    \
    X(TRACE_DRAINING, "tracing") /* kinds are off, records of the burst still come */              \
    X(TRACE_YIELDED, "yielded")  /* another profiler of this process has its turn */               \
    X(TRACE_BLOCKED, "blocked")  /* somebody else has CUPTI: again later */                        \
    X(TRACE_OFF, "off")          /* for good */
enum trace_state { TRACE_STATES(ENUM_NAME) };

/* The libcupti that the trainer already has, its calls by name, and a fence around each.
 *
 * No lock of ours is ever held across a call: CUPTI calls our buffer callbacks from inside its
 * own, on any thread. Agent's thread only.
 */

enum cupti_result {
    CUPTI_OK = 0,
    CUPTI_NOT_COMPATIBLE = 14,
    CUPTI_HARDWARE_BUSY = 26,
    CUPTI_NOT_SUPPORTED = 27,
    CUPTI_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_MULTIPLE_SUBSCRIBERS = 39,
    CUPTI_GONE = -1, /* ours: the process exits, or the call does not exist */
};

enum cupti_attribute {
    ATTR_DEVICE_BUFFER_SIZE = 0,
    ATTR_DEVICE_BUFFER_POOL_LIMIT = 2,
    ATTR_PER_THREAD_ACTIVITY_BUFFER = 9,
};

/* Its calls: the member, the name, whether nothing goes without it, what it takes. */
#define CUPTI_CALLS(X)                                                                                        \
    X(get_version, "cuptiGetVersion", true, uint32_t *)                                                       \
    X(register_callbacks, "cuptiActivityRegisterCallbacks", true, void (*)(uint8_t **, size_t *, size_t *),   \
      void (*)(void *, uint32_t, uint8_t *, size_t, size_t))                                                  \
    X(enable, "cuptiActivityEnable", true, uint32_t kind)                                                     \
    X(disable, "cuptiActivityDisable", true, uint32_t kind)                                                   \
    X(flush, "cuptiActivityFlushAll", true, uint32_t flag)                                                    \
    X(finalize, "cuptiFinalize", false, void)                                                                 \
    X(get_timestamp, "cuptiGetTimestamp", false, uint64_t *)                                                  \
    X(register_clock, "cuptiActivityRegisterTimestampCallback", false, uint64_t (*)(void))                    \
    X(enable_runtime, "cuptiActivityEnableRuntimeApi", false, uint32_t cbid, uint8_t on)                      \
    X(enable_driver, "cuptiActivityEnableDriverApi", false, uint32_t cbid, uint8_t on)                        \
    X(dropped, "cuptiActivityGetNumDroppedRecords", false, void *context, uint32_t stream, size_t *count)     \
    X(get_attribute, "cuptiActivityGetAttribute", false, uint32_t attribute, size_t *bytes, void *value)      \
    X(set_attribute, "cuptiActivitySetAttribute", false, uint32_t attribute, size_t *bytes, void *value)      \
    X(get_result_string, "cuptiGetResultString", false, int result, const char **text)                        \
    X(next_record, "cuptiActivityGetNextRecord", true, uint8_t *buffer, size_t valid, void **record)

struct cupti {
    char path[512];
    uint32_t version;
    struct strides strides;
#define MEMBER(member, name, needed, ...) int (*member)(__VA_ARGS__);
    CUPTI_CALLS(MEMBER)
#undef MEMBER
};

/* Why CUPTI was not found: TRACE_WAITING for a context, TRACE_ABSENT until an import brings it, or TRACE_OFF. */
struct find_fault {
    enum trace_state state;
    enum status_code code;
    char says[768];
};

/* Looks for CUDA and CUPTI in this process and resolves the calls. False: `fault` says why not. Where no
 * CUPTI is mapped, `file` is loaded, unless it is NULL or empty. */
bool cupti_find(struct cupti *out, const char *file, struct find_fault *fault);

/* A torch is in this process, of Python or of C++. */
bool torch_is_mapped(void);

/* The calling thread's own calls break no capture of a CUDA graph that is under way elsewhere. */
void cupti_relax_capture(void);

/* One call inside the fence: evaluates to its code, CUPTI_GONE when it may not be made. */
#define CUPTI_CALL(cupti, member, ...)                                                             \
    ((cupti)->member == NULL || !cupti_enter()                                                     \
         ? CUPTI_GONE                                                                              \
         : cupti_leave((cupti)->member(__VA_ARGS__), #member))

bool cupti_enter(void);
int cupti_leave(int code, const char *call);

/* From the exiting thread: no further call begins; waits for one that runs, at most `ms`. */
void cupti_close(int ms);

uint64_t cupti_faults(void);

/* The last call that failed and its code, as `enable answered 39 CUPTI_ERROR_...`. */
void cupti_last_fault(const struct cupti *cupti, char *out, size_t room);

/* Launches and their kernels, which share a correlation id: who has its row, whether a burst has the row of
 * every launch, and which API's rows are worth their cost. Agent's thread only. */

void correlation_kernel(uint32_t correlation);

/* `what` is an enum call_class: a launch of one kernel, one of a graph, which may hold none, or a call that
 * launches nothing. */
void correlation_call(uint32_t correlation, bool driver, uint16_t what);

/* Launches since the first kernel whose own kernel has not come. */
uint64_t correlation_pending(void);

void api_filter_forget(void);

/* Tracing will begin. True: it should take the rows of the driver's API too. */
bool api_filter_begin(void);

/* Everything is on. */
void api_filter_began(int64_t now_ns);

/* While tracing goes on without an end. True: the driver's rows should be taken up or given up, by
 * api_filter_switch, when the trainer is met. */
bool api_filter_turn(int64_t now_ns);
void api_filter_switch(const struct cupti *cupti);

/* Everything that came has been converted. */
enum launches api_filter_ended(void);

/* Meets the trainer where it launches nothing, and holds it there for a moment.
 *
 * Kinds switched beside a launching thread kill the trainer: CUPTI 13.0.85 crashed about once in 200
 * times, with and without CUDA graphs, and never in 18,000 times between steps (H200, torch 2.11).
 * So everything but flushing waits for one of these places: between two steps, in the optimizer's hook; between
 * two bytecodes of the main thread, by a pending call of the interpreter, where no step ends for a while; or
 * inside brrr_yield and brrr_stop. A process of whose threads nobody knows which launch is held as a whole (below).
 * Agent's thread only, but for what says otherwise or belongs to a thread of the trainer. */

/* Whether the world may be held: never, where nobody comes by himself for a while, or always, as a
 * thread that comes by tells nothing of the others. */
enum safepoint_world { WORLD_NEVER, WORLD_LAST, WORLD_ONLY };
extern struct held_world {
    enum safepoint_world when;
    bool held;        /* the present meeting is one with the world */
    bool failed;      /* it was once let go before we were done: nothing is to begin there any more */
    const char *says; /* why it was not held at the last try; NULL: it was, or nobody tried */
} held_world;

/* HERE: the trainer is held until safepoint_over. LATER: ask again
 * when safepoint_due says or agent_wake woke. NEVER: it has not come for ten seconds. */
enum meet { MEET_HERE, MEET_LATER, MEET_NEVER };
enum meet safepoint_ask(int64_t now_ns);

/* When to ask again at the latest, monotonic. */
int64_t safepoint_due(int64_t now_ns);

/* The number of the step to meet at, known ahead; safepoint_ask follows. */
void safepoint_arm(uint64_t step);

/* Lets the trainer go on; nobody is asked for any more. */
void safepoint_over(void);

/* For whoever has to go on, at most after `ms`. safepoint_over must follow in any case. */
enum meet safepoint_within(int ms);

/* A step ended: waits here if the agent asks for it. */
void safepoint_step(uint64_t count);

/* The calling thread waits for the agent from the first to the second; if it is the one that steps, or
 * the main one, it counts as met. True: it is. */
bool safepoint_caller(void);
void safepoint_caller_left(void);

/* How long the trainer was held at the longest since the call before; any thread. */
int64_t safepoint_longest_ns(void);

/* Turning CUPTI's kinds on and off, taking it out of the launch path where that is safe, and leaving it as
 * it was found. Agent's thread only, while the trainer is held (above), but for what only asks. */

/* True: kernels, copies and memsets are on, and calls of each API that is asked for. False: nothing of
 * ours is; the code is that of the call that failed. */
bool switch_on(const struct cupti *cupti, bool runtime, bool driver, int *code);

/* Takes or leaves the calls of the driver's API while the rest is on; whether they are taken then. */
bool switch_driver(const struct cupti *cupti, bool take);
bool switch_takes(uint32_t kind);

/* Turns off what this agent turned on. False: the trainer was let go meanwhile, so that some may still be on. */
bool switch_off(const struct cupti *cupti);

/* Gives back the attributes that were changed, if any were. */
bool switch_changed(void);
void switch_restore(const struct cupti *cupti);

/* Whether the trainer may hold CUDA graphs (any thread). True is for good, and comes back only when
 * no take-out is under way any more; false counts until somebody says true. */
void finalize_graphs(bool may_exist);

/* Another profiler has set CUPTI up for the life of the process: it is not ours to take out any more. */
void finalize_never(void);

/* The records have shown one: tells nothing of who launches. */
void graphs_seen(void);

/* The trainer's torch has said whether there may be any, and so tells where nothing is launched. */
bool graphs_told(void);

/* Somebody looked and found none, and none was heard of since. */
bool graphs_ruled_out(void);
/* One was found, captured or replayed. */
bool graphs_possible(void);

/* Agent's thread, everything off and drained: finalizes CUPTI if no graph can exist. True: it is out. */
bool takeout(const struct cupti *cupti);

/* The callbacks may be somebody else's by now: register again at the next switch_on. */
void switch_forget(void);

/* When device activity is traced, and when not. Agent's thread only, but for trace_step. */

void trace_init(void);

/* Does what is due; returns the CLOCK_MONOTONIC time of the next thing due. */
int64_t trace_tick(int64_t now_ns);

void trace_want(bool continuous, uint32_t allowed);
void trace_burst(int64_t steps, int64_t longest_ns);
void trace_burst_end(void);

/* Nobody is left to read: flushed, then off as soon as the trainer can be met, attributes as they were found; `must`: though the trainer could not be met. */
void trace_detach(bool must);
bool trace_is_on(void);

/* What is on was switched on while all threads were held, and may only be switched off so. */
bool trace_must_wait(void);
void trace_yield(const char *who);
void trace_resume(void);

/* Walks the buffers that came back. */
void trace_pump(void);

/* For what the agent says of itself. */
extern struct tracing {
    enum trace_state state;
    enum status_code code;
    char says[768]; /* the code's sentence */
    bool found;     /* `cupti` is whole */
    bool has_calls; /* it can tell launches */
    bool continuous;
    uint64_t bursts, dropped;
    struct cupti cupti;
} tracing;

/* A step ended (any thread). */
void trace_step(uint64_t count);

/* Holds every thread of the trainer that may launch, each outside CUDA, so that CUPTI can be switched
 * in a process that tells nobody when it launches nothing (JAX, C++, several launching threads).
 *
 * A child that shares our memory traces the threads, as LeakSanitizer's StopTheWorld does. A thread is
 * held only where neither its next instruction nor a return address on its stack lies in CUDA, so
 * it is inside no call of CUDA's, and where it holds no lock of the C library's. A thread inside
 * goes on at once and is tried again microseconds later; CUDA's own threads are let run. When the
 * child ends, in whatever way, the kernel lets all threads go.
 *
 * Agent's thread only. Linux on x86-64; elsewhere, and where tracing is forbidden, WORLD_REFUSED. */

enum world {
    WORLD_HELD,    /* until world_resume, or for 3 s at the longest, or 300 ms if the agent waits for a lock */
    WORLD_BUSY,    /* some thread was inside CUDA at each try */
    WORLD_REFUSED, /* the kernel does not let us */
};
/* Threads outside are held for those inside for at most `wait_ms` at a time. */
enum world world_hold(int patience_ms, int wait_ms);

/* All were let go before we said so: the child's time was over, or somebody killed it. */
bool world_lost(void);

/* Lets all go. False: they had been let go before, because this took too long. */
bool world_resume(void);

void world_forked(void);
