/* What the Python side may call. All of it is safe from any thread, and does nothing
 * (or answers a negative code) where the agent is not running.
 *
 * Times are integer nanoseconds of CLOCK_REALTIME. Strings are UTF-8 and copied. A `tid` is the low
 * half of pthread_self(), as CUPTI numbers threads in its own records unless told otherwise; it is
 * not told otherwise, because torch.profiler counts on that.
 */
#pragma once

#include <stdint.h>

#define BRRR_API __attribute__((visibility("default")))

enum brrr_code {
    BRRR_OK = 0,
    BRRR_E_ARGUMENT = -1, /* a null or empty path, an unknown option */
    BRRR_E_SOCKET = -2,   /* directory or socket refused; the sentence says why */
    BRRR_E_MEMORY = -3,
    BRRR_E_THREAD = -4,
    BRRR_E_BUSY = -5,     /* another start or a stop is under way */
    BRRR_E_TIMEOUT = -6   /* the agent's thread did not answer in time */
};

/* Bits of brrr_wait. */
enum brrr_event {
    BRRR_EV_STOP = 1,           /* unhook; after DETACH also call brrr_stop */
    BRRR_EV_MONITOR = 8,        /* a monitor connected: hook again if unhooked */
    BRRR_EV_MONITOR_GONE = 16,  /* the last one left; comes with BRRR_EV_STOP */
    BRRR_EV_TRACING = 64,       /* a burst or continuous tracing began */
    BRRR_EV_ENDED = 256,        /* the agent's thread is gone; brrr_start may be called again */
    BRRR_EV_SHAPES = 512,       /* record the ops of one step, once tracing is on */
    BRRR_EV_REST = 1024         /* a monitor takes the stack samples itself */
};

/* Starts the agent: one detached thread that listens on `socket_path`.
 *
 * `hello_json` is one JSON object: the HELLO frame.
 * `options` is "key=value;key=value" or NULL:
 *   buffer_bytes (1048576)  max_buffers (14)  outbox_bytes (8388608)  drain_ms (500)  flush_ms (150)
 *   idle_retract_ms (600000; 0 = never)  cupti (a file to load where no libcupti is mapped; none)
 * Running already: 0 again, whatever the arguments. */
BRRR_API int brrr_start(const char *socket_path, const char *hello_json, const char *options);

/* brrr_start for a program that is not Python: `text` is the socket's path and the options, apart by a
 * line's end; the hello is made here. `@PID@` in the path stands for the process. Where it fails, a
 * link beside the socket says why. */
BRRR_API int brrr_inject(const char *text);

/* What CUDA calls in a library that CUDA_INJECTION64_PATH names, before anything else of it can be used;
 * BRRRTOP_INJECT holds the text for brrr_inject. Leaves Python alone: that has a way of its own. */
BRRR_API int InitializeInjection(void);

/* Flushes, disables the kinds this agent enabled, closes the socket, ends the thread.
 * The library stays mapped and its callbacks stay registered. At most 2 s. */
BRRR_API int brrr_stop(void);

/* The sentence for the last negative code; never NULL. */
BRRR_API const char *brrr_last_error(void);

/* The bits raised since the last call, or 0 after `timeout_ms`. Release the GIL around it. */
BRRR_API int brrr_wait(int timeout_ms);

/* One mark (wire MARK). Dropped without a trace when no monitor is connected. */
BRRR_API void brrr_mark(uint16_t mark_class, int64_t start_ns, int64_t end_ns, int64_t value,
                        uint32_t name_id, uint32_t tid);

/* An optimizer step ended: a STEP point mark whose value counts steps, and the beat of bursts. */
BRRR_API void brrr_step(int64_t t_ns, uint32_t tid);

/* The PyMethodDef of a callback of `gc`, called with nothing in between: a GC mark of 200 us or more. */
BRRR_API const void *brrr_collection(void);

/* The id of a name, the same for the same text; 0 for the empty name or when the table is full. */
BRRR_API uint32_t brrr_name(const char *utf8);

/* Sends one frame; `records` is what a loss would count. Kind HELLO replaces the stored hello; DEVICE is
 * sent to later monitors too. Returns 0, or negative when nobody listens or the queue is full. */
BRRR_API int brrr_frame(uint16_t kind, const void *payload, uint32_t bytes, uint32_t records);

/* Another profiler (`who`) is about to use CUPTI: back within 2 s with our kinds off and the
 * attributes restored. brrr_resume takes the callbacks again at the next burst. */
BRRR_API int brrr_yield(const char *who);
BRRR_API int brrr_resume(void);

/* Whether the trainer may hold CUDA graphs: 1 before one is captured or when one is found (for good),
 * 0 when none was found. CUPTI is only ever taken out of the launch path after a 0 and no 1. */
BRRR_API void brrr_graphs(int may_exist);

/* A stream is being captured from 1 to 0: nothing of CUPTI's is switched meanwhile. */
BRRR_API void brrr_capture(int begins);

/* Running counters, at most n of: state, monitors, kernels, calls, records lost at all places, bytes of the pool, of
 * the outbox and of the names, bursts, CPU time of the agent's thread in ns. Returns how many there are. */
BRRR_API int brrr_stats(uint64_t *out, int n);
