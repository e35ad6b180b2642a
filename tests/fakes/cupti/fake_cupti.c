/* A libcupti without a GPU: real record layouts of CUPTI 12.4 to 13.5, scripted by a test.
 *
 * Launches are made by fake_launch and its kin on any thread. As in CUPTI, a record is placed in
 * the launching thread's buffer at the launch and is complete once its kernel has ended; a buffer
 * goes back when it is full and all of it is complete, from a worker thread, or at a flush when
 * all of it is complete. Device time follows CLOCK_REALTIME.
 *
 * A call has a row when its kind is on and its id is: an id enabled alone is accepted and gives
 * nothing, as CUPTI 13.0.85 has it.
 *
 * -DOLDER_THAN_12_6 leaves out the calls that came with 12.6.
 *
 * With faults/faults.c preloaded each call fails, hangs or lies as BRRRTOP_FAULT says of its name. A lie is a
 * success that did nothing, or an answer that cannot be.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define KINDS 64
#define CBIDS 1024
#define BUFFERS 256
#define LAST_RUNTIME 540
#define LAST_DRIVER 850

typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(void *, uint32_t, uint8_t *, size_t, size_t);

enum { OK = 0, INVALID_PARAMETER = 1, MAX_LIMIT_REACHED = 12, INVALID_KIND = 21 };

enum call {
    C_VERSION, C_TIMESTAMP, C_REGISTER, C_CLOCK, C_ENABLE, C_DISABLE, C_RUNTIME, C_DRIVER, C_FLUSH,
    C_DROPPED, C_GET_ATTRIBUTE, C_SET_ATTRIBUTE, C_NEXT, C_FINALIZE, C_SUBSCRIBE, CALLS
};

struct buffer {
    uint8_t *memory;
    size_t size, used;
    int64_t complete_ns; /* when its last kernel ends */
    long owner;          /* thread; -1: full */
    complete_fn complete;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t version = 130001;
static request_fn request;
static complete_fn complete;
static uint64_t (*clock_callback)(void);
static bool enabled[KINDS], ever[KINDS], runtime_on[CBIDS], driver_on[CBIDS];
static struct buffer buffers[BUFFERS];
static int buffer_count, fail_code[CALLS], fail_times[CALLS];
static uint64_t calls[CALLS], forced, no_buffer;
static uint32_t told_size[KINDS];
static size_t attribute[32] = {[0] = 3200000, [2] = 250, [9] = 1};
static int64_t device_free_ns, clock_shift_ns;
static uint32_t correlation = 100;
static int zero_left;
static size_t dropped;
static bool worker_runs, driver_inside;
static atomic_int flush_takes_ms;
static atomic_int working, switch_takes_us;
static atomic_int beside; /* calls that may only be made while nothing is launched */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void nap(long us)
{
    if (us > 0)
        nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* With the lock held: true when the script wants this call to fail. */
static bool fails(enum call which, int *code)
{
    calls[which]++;
    switch (which) {
    case C_REGISTER: case C_ENABLE: case C_DISABLE: case C_RUNTIME: case C_DRIVER: case C_SET_ATTRIBUTE: case C_FINALIZE:
        atomic_fetch_add(&beside, atomic_load(&working) != 0);
        nap(atomic_load(&switch_takes_us));
        atomic_fetch_add(&beside, atomic_load(&working) != 0);
    default:
    }
    if (fail_times[which] == 0)
        return false;
    if (fail_times[which] > 0)
        fail_times[which]--;
    *code = fail_code[which];
    return true;
}

enum { FAULT_FAIL = 1, FAULT_LIE = 2 };
__attribute__((weak)) int fault_for(const char *name, int *code);
static int fault(const char *name, int *code) { return fault_for != NULL ? fault_for(name, code) : 0; }

#define ENTER(which)                                                                               \
    int code_ = OK, fault_ = fault(__func__, &code_);                                              \
    bool lies = fault_ == FAULT_LIE;                                                               \
    (void)lies;                                                                                    \
    if (fault_ == FAULT_FAIL)                                                                      \
        return code_;                                                                              \
    pthread_mutex_lock(&lock);                                                                     \
    if (fails(which, &code_)) {                                                                    \
        pthread_mutex_unlock(&lock);                                                               \
        return code_;                                                                              \
    }
#define LEAVE(code) return pthread_mutex_unlock(&lock), (code)

static uint32_t size_of(uint32_t kind)
{
    bool v13 = version >= 130000;
    if (kind < KINDS && told_size[kind] != 0)
        return told_size[kind];
    switch (kind) {
    case 1: return version >= 130400 ? 112 : version >= 26 ? 96 : 88;
    case 2: return version >= 130400 ? 104 : 88;
    case 3:
    case 10:
        return version >= 130400 ? 248 : version >= 130300 ? 232 : version >= 130100 ? 224 : v13 ? 216 : 208;
    case 4:
    case 5:
    case 48: return 40;
    case 8: return 184;
    case 22: return 96;
    case 38: return version >= 26 ? 56 : 40;
    case 39: return 24;
    case 51: return version >= 22 ? 56 : 48;
    default: return 0;
    }
}

/* Gives back what may go, outside the lock, as CUPTI does from its worker or from a flush. */
static void deliver(bool partial)
{
    for (;;) {
        struct buffer gone = {0};
        int64_t now = now_ns();
        pthread_mutex_lock(&lock);
        for (int i = 0; i < buffer_count; i++) {
            struct buffer *b = &buffers[i];
            if ((b->owner != -1 && !partial) || b->complete_ns > now)
                continue;
            gone = *b;
            buffers[i] = buffers[--buffer_count];
            break;
        }
        pthread_mutex_unlock(&lock);
        if (gone.memory == NULL)
            return;
        int code = OK; /* the callback, as CUPTI calls it: more bytes than there are, of its own making */
        if (fault("bufferCompleted", &code) == FAULT_LIE) {
            memset(gone.memory, 0x5A, gone.used);
            gone.used = gone.size * 2;
        }
        gone.complete(NULL, 0, gone.memory, gone.size, gone.used);
    }
}

static void *work(void *unused)
{
    pthread_setname_np(pthread_self(), "cupti-worker");
    for (;;) {
        nanosleep(&(struct timespec){0, 2000000}, NULL);
        deliver(false);
    }
    return unused;
}

static void start_worker(void)
{
    if (worker_runs)
        return;
    worker_runs = true;
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    pthread_detach(thread);
}

/* Room for one record in this thread's buffer, with the lock held; it is let go while the client is
 * asked for a buffer. NULL: dropped. */
static uint8_t *place(size_t bytes, int64_t complete_ns)
{
    long me = syscall(SYS_gettid);
    for (;;) {
        for (int i = 0; i < buffer_count; i++) {
            struct buffer *b = &buffers[i];
            if (b->owner != me)
                continue;
            if (b->used + bytes > b->size) {
                b->owner = -1;
                break;
            }
            uint8_t *at = b->memory + b->used;
            b->used += bytes;
            if (complete_ns > b->complete_ns)
                b->complete_ns = complete_ns;
            memset(at, 0, bytes);
            return at;
        }
        if (request == NULL || buffer_count == BUFFERS) {
            dropped++;
            return NULL;
        }
        request_fn ask = request;
        complete_fn give = complete;
        struct buffer fresh = {.owner = me, .complete = give};
        size_t most = 0;
        pthread_mutex_unlock(&lock);
        ask(&fresh.memory, &fresh.size, &most);
        pthread_mutex_lock(&lock);
        if (fresh.memory == NULL || fresh.size < bytes) {
            no_buffer++;
            dropped++;
            return NULL;
        }
        buffers[buffer_count++] = fresh;
    }
}

#define PUT(at, type, value)                                                                       \
    do {                                                                                           \
        type put_ = (type)(value);                                                                 \
        memcpy(record + (at), &put_, sizeof put_);                                                 \
    } while (0)

static void put_call(uint32_t kind, uint32_t cbid, uint32_t id, int64_t start, int64_t end, int result)
{
    if (!enabled[kind] || !(kind == 4 ? driver_on : runtime_on)[cbid])
        return;
    uint8_t *record = place(40, end);
    if (record == NULL)
        return;
    PUT(0, uint32_t, kind);
    PUT(4, uint32_t, cbid);
    PUT(8, int64_t, start + clock_shift_ns);
    PUT(16, int64_t, end + clock_shift_ns);
    PUT(24, uint32_t, getpid());
    PUT(28, uint32_t, (uintptr_t)pthread_self());
    PUT(32, uint32_t, id);
    PUT(36, uint32_t, result);
}

static void put_kernel(const char *name, uint32_t id, int64_t start, int64_t end, uint32_t stream,
                       uint32_t graph, uint64_t node)
{
    uint8_t *record = place(size_of(10), end);
    if (record == NULL)
        return;
    bool zero = zero_left > 0 && zero_left-- > 0;
    PUT(0, uint32_t, 10);
    PUT(6, uint16_t, 32);
    PUT(16, int64_t, zero ? 0 : start + clock_shift_ns);
    PUT(24, int64_t, zero ? 0 : end + clock_shift_ns);
    PUT(44, uint32_t, 1);
    PUT(48, uint32_t, stream);
    for (int i = 0; i < 3; i++) {
        PUT(52 + 4 * i, int32_t, 100 + i);
        PUT(64 + 4 * i, int32_t, 64 + i);
    }
    PUT(76, int32_t, 1024);
    PUT(80, int32_t, 2048);
    PUT(92, uint32_t, id);
    PUT(104, const char *, name);
    PUT(144, uint64_t, node);
    PUT(156, uint32_t, graph);
    PUT(168, uint32_t, 7);
}

/* --- the script ------------------------------------------------------------------------- */

EXPORT void fake_version(uint32_t to) { version = to; }
/* Runtime launches make a driver call, with its row, as most real ones do. */
EXPORT void fake_driver_inside(int on) { driver_inside = on; }
/* Records of a kind are said to be that long; 0: as they are. */
EXPORT void fake_size(uint32_t kind, uint32_t bytes) { told_size[kind] = bytes; }
EXPORT void fake_clock_shift(int64_t ns) { clock_shift_ns = ns; }
EXPORT void fake_zero_timestamps(int count) { zero_left = count; }
EXPORT void fake_slow_flush(int ms) { atomic_store(&flush_takes_ms, ms); }
EXPORT void fake_drop(size_t count) { dropped += count; }

EXPORT void fake_fail(int which, int code, int times)
{
    pthread_mutex_lock(&lock);
    fail_code[which] = code;
    fail_times[which] = times;
    pthread_mutex_unlock(&lock);
}

/* One kernel of `ns`, launched now with the runtime call `cbid`, `lag_ns` after the launch at the
 * earliest. */
static void launch(const char *name, int64_t ns, int64_t lag_ns, uint32_t stream, uint32_t cbid, bool driver)
{
    uint32_t id = correlation++;
    int64_t begun = now_ns(), start = begun + 3000 + lag_ns;
    if (start < device_free_ns)
        start = device_free_ns;
    device_free_ns = start + ns;
    if (enabled[10])
        put_kernel(name, id, start, start + ns, stream, 0, 0);
    if (driver_inside && !driver)
        put_call(4, 307, id, begun, begun + 2000, 0);
    put_call(driver ? 4 : 5, cbid, id, begun, begun + 3000, 0);
}

EXPORT void fake_launch(const char *name, int count, int64_t ns, int64_t lag_ns, uint32_t stream)
{
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&lock);
        launch(name, ns, lag_ns, stream, 211, false);
        pthread_mutex_unlock(&lock);
    }
}

/* Launches without pause for `ms`. Switching CUPTI meanwhile kills real trainers; here it is counted. */
EXPORT void fake_work(const char *name, int ms)
{
    int64_t until = now_ns() + ms * 1000000LL;
    atomic_fetch_add(&working, 1);
    while (now_ns() < until) {
        fake_launch(name, 5, 100, 0, 7);
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    atomic_fetch_sub(&working, 1);
}

/* One call of an API on any thread, which launches a kernel and is under way for `us`: it waits in the
 * kernel (2), in the C library (1), or computes. */
EXPORT void fake_api(int us, int how)
{
    static const char name[] = "api_kernel";
    int64_t until = now_ns() + us * 1000LL;
    atomic_fetch_add(&working, 1);
    fake_launch(name, 1, 100, 0, 7);
    if (how == 2)
        nap(us);
    for (volatile int spent = 0; now_ns() < until; spent++) {
        void *block = how == 1 ? malloc(64) : NULL;
        free(block);
    }
    atomic_fetch_sub(&working, 1);
}

/* One call that does not come back before it is let out. */
static atomic_bool let_out;
EXPORT void fake_let_out(void) { atomic_store(&let_out, true); }
EXPORT void fake_stay_inside(void)
{
    atomic_fetch_add(&working, 1);
    while (!atomic_load(&let_out))
        nap(1000);
    atomic_fetch_sub(&working, 1);
}

EXPORT void fake_slow_switch(int us) { atomic_store(&switch_takes_us, us); }

EXPORT int fake_beside(void) { return atomic_load(&beside); }

/* As Triton does. */
EXPORT void fake_launch_driver(const char *name, int count, int64_t ns)
{
    for (int i = 0; i < count; i++) {
        pthread_mutex_lock(&lock);
        launch(name, ns, 0, 7, 652, true);
        pthread_mutex_unlock(&lock);
    }
}

/* One replay of a graph of `count` kernels. */
EXPORT void fake_graph(const char *name, int count, int64_t ns, uint32_t graph)
{
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    int64_t begun = now_ns(), start = begun + 5000;
    if (start < device_free_ns)
        start = device_free_ns;
    for (int i = 0; i < count && enabled[10]; i++)
        put_kernel(name, id, start + i * ns, start + i * ns + ns, 7, graph, 1000u + (uint32_t)i);
    device_free_ns = start + count * ns;
    put_call(5, 311, id, begun, begun + 5000, 0);
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_copy(int kind, uint64_t bytes, int64_t ns)
{
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    int64_t begun = now_ns(), start = begun + 2000;
    if (start < device_free_ns)
        start = device_free_ns;
    device_free_ns = start + ns;
    uint8_t *record = enabled[1] ? place(size_of(1), start + ns) : NULL;
    if (record != NULL) {
        PUT(0, uint32_t, 1);
        PUT(4, uint8_t, kind);
        PUT(5, uint8_t, 2);
        PUT(6, uint8_t, 3);
        PUT(7, uint8_t, 1);
        PUT(8, uint64_t, bytes);
        PUT(16, int64_t, start);
        PUT(24, int64_t, start + ns);
        PUT(40, uint32_t, 7);
        PUT(44, uint32_t, id);
    }
    put_call(5, 41, id, begun, begun + 2000, 0);
    pthread_mutex_unlock(&lock);
}

EXPORT void fake_memset(uint64_t bytes, int64_t ns)
{
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    int64_t start = now_ns();
    uint8_t *record = enabled[2] ? place(size_of(2), start + ns) : NULL;
    if (record != NULL) {
        PUT(0, uint32_t, 2);
        PUT(8, uint64_t, bytes);
        PUT(16, int64_t, start);
        PUT(24, int64_t, start + ns);
        PUT(40, uint32_t, 7);
        PUT(44, uint32_t, id);
        PUT(50, uint16_t, 3);
    }
    pthread_mutex_unlock(&lock);
}

/* A host call such as cudaStreamSynchronize that takes `ns`. */
EXPORT void fake_call(uint32_t cbid, int driver, int64_t ns, int result)
{
    pthread_mutex_lock(&lock);
    int64_t end = now_ns();
    put_call(driver ? 4 : 5, cbid, correlation++, end - ns, end, result);
    pthread_mutex_unlock(&lock);
}

/* Any bytes as one buffer of the registered client. 0: it gave no buffer of that size. */
EXPORT int fake_feed(const uint8_t *bytes, size_t count)
{
    uint8_t *memory = NULL;
    size_t size = 0, most = 0;
    if (request == NULL)
        return 0;
    request(&memory, &size, &most);
    if (memory == NULL)
        return 0;
    if (size < count) {
        complete(NULL, 0, memory, size, 0);
        return 0;
    }
    memcpy(memory, bytes, count);
    complete(NULL, 0, memory, size, count);
    return 1;
}

EXPORT void fake_foreign_buffer(void)
{
    static uint8_t somebody_elses[64];
    if (complete != NULL)
        complete(NULL, 0, somebody_elses, sizeof somebody_elses, 8);
}

static void other_request(uint8_t **buffer, size_t *size, size_t *most)
{
    *buffer = malloc(1 << 16);
    *size = 1 << 16;
    *most = 0;
}

static void other_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size, (void)valid;
    (void)buffer; /* ours or the agent's: torch.profiler drops what it does not know */
}

/* As torch.profiler does: the callbacks are its own from here on. */
EXPORT void fake_take_callbacks(void)
{
    pthread_mutex_lock(&lock);
    request = other_request;
    complete = other_complete;
    pthread_mutex_unlock(&lock);
}

EXPORT uint64_t fake_calls(int which) { return calls[which]; }
EXPORT uint64_t fake_forced(void) { return forced; }
EXPORT uint64_t fake_no_buffer(void) { return no_buffer; }
EXPORT int fake_enabled(int kind) { return enabled[kind]; }
EXPORT int fake_ever(int kind) { return ever[kind]; }
EXPORT uint64_t fake_attribute(int which) { return attribute[which]; }
EXPORT void fake_set_attribute(int which, size_t value) { attribute[which] = value; }
EXPORT int fake_has_own_clock(void) { return clock_callback != NULL; }
EXPORT int64_t fake_device_free(void) { return device_free_ns; }

/* Calls that would have a row now. */
EXPORT int fake_enabled_calls(void)
{
    int count = 0;
    for (int i = 1; i < CBIDS; i++)
        count += (enabled[5] && i <= LAST_RUNTIME && runtime_on[i]) +
                 (enabled[4] && i <= LAST_DRIVER && driver_on[i]);
    return count;
}

EXPORT int fake_lent(void)
{
    pthread_mutex_lock(&lock);
    int count = buffer_count;
    pthread_mutex_unlock(&lock);
    return count;
}

/* --- CUPTI ------------------------------------------------------------------------------ */

EXPORT int cuptiGetVersion(uint32_t *out)
{
    ENTER(C_VERSION);
    *out = lies ? 4000000000u : version;
    LEAVE(OK);
}

EXPORT int cuptiGetTimestamp(uint64_t *out)
{
    ENTER(C_TIMESTAMP);
    *out = clock_callback ? clock_callback() : (uint64_t)(now_ns() + clock_shift_ns);
    if (lies)
        *out = 42;
    LEAVE(OK);
}

EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*callback)(void))
{
    ENTER(C_CLOCK);
    clock_callback = callback;
    clock_shift_ns = 0;
    LEAVE(OK);
}

EXPORT int cuptiActivityRegisterCallbacks(request_fn ask, complete_fn give)
{
    ENTER(C_REGISTER);
    if (lies)
        LEAVE(OK);
    request = ask;
    complete = give;
    LEAVE(OK);
}

EXPORT int cuptiActivityEnable(uint32_t kind)
{
    ENTER(C_ENABLE);
    if (lies)
        LEAVE(OK);
    if (kind >= KINDS)
        LEAVE(INVALID_KIND);
    start_worker();
    enabled[kind] = ever[kind] = true;
    /* All its calls again, whatever was said of single ones before. */
    if (kind == 5)
        memset(runtime_on, 1, sizeof runtime_on);
    if (kind == 4)
        memset(driver_on, 1, sizeof driver_on);
    LEAVE(OK);
}

EXPORT int cuptiActivityDisable(uint32_t kind)
{
    ENTER(C_DISABLE);
    if (lies)
        LEAVE(OK);
    if (kind >= KINDS)
        LEAVE(INVALID_KIND);
    enabled[kind] = false;
    LEAVE(OK);
}

#ifndef OLDER_THAN_12_6
EXPORT int cuptiActivityEnableRuntimeApi(uint32_t cbid, uint8_t on)
{
    ENTER(C_RUNTIME);
    if (lies)
        LEAVE(OK);
    if (cbid == 0 || cbid > LAST_RUNTIME)
        LEAVE(INVALID_PARAMETER);
    runtime_on[cbid] = on;
    LEAVE(OK);
}

EXPORT int cuptiActivityEnableDriverApi(uint32_t cbid, uint8_t on)
{
    ENTER(C_DRIVER);
    if (cbid == 0 || cbid > LAST_DRIVER)
        LEAVE(INVALID_PARAMETER);
    driver_on[cbid] = on;
    LEAVE(OK);
}
#endif

EXPORT int cuptiActivityFlushAll(uint32_t flag)
{
    int code = OK, told = fault(__func__, &code);
    if (told != 0)
        return told == FAULT_LIE ? OK : code;
    pthread_mutex_lock(&lock);
    bool stop = fails(C_FLUSH, &code);
    forced += flag & 1;
    pthread_mutex_unlock(&lock);
    int ms = atomic_load(&flush_takes_ms);
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
    if (stop)
        return code;
    deliver(true);
    return OK;
}

EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *out)
{
    (void)context, (void)stream;
    ENTER(C_DROPPED);
    *out = lies ? 1000000 : dropped;
    dropped = 0;
    LEAVE(OK);
}

/* As the real one: the length is one byte for attributes that are one byte. */
EXPORT int cuptiActivityGetAttribute(uint32_t which, size_t *bytes, void *value)
{
    ENTER(C_GET_ATTRIBUTE);
    size_t needed = which == 9 ? 1 : sizeof(size_t);
    if (which >= 32 || *bytes != needed)
        LEAVE(INVALID_PARAMETER);
    memcpy(value, &attribute[which], needed);
    if (lies)
        memset(value, 0xFF, needed);
    LEAVE(OK);
}

EXPORT int cuptiActivitySetAttribute(uint32_t which, size_t *bytes, void *value)
{
    ENTER(C_SET_ATTRIBUTE);
    size_t needed = which == 9 ? 1 : sizeof(size_t);
    if (which >= 32 || *bytes != needed)
        LEAVE(INVALID_PARAMETER);
    if (lies)
        LEAVE(OK);
    attribute[which] = 0;
    memcpy(&attribute[which], value, needed);
    LEAVE(OK);
}

EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    ENTER(C_NEXT);
    uint8_t *next = buffer;
    uint32_t kind;
    if (*record != NULL) {
        memcpy(&kind, *record, sizeof kind);
        next = (uint8_t *)*record + (lies ? 8 : size_of(kind));
    }
    if ((size_t)(next - buffer) + sizeof kind > valid)
        LEAVE(MAX_LIMIT_REACHED);
    memcpy(&kind, next, sizeof kind);
    if (size_of(kind) == 0)
        LEAVE(INVALID_KIND);
    if ((size_t)(next - buffer) + size_of(kind) > valid)
        LEAVE(MAX_LIMIT_REACHED);
    *record = next;
    LEAVE(OK);
}

EXPORT int cuptiGetResultString(int code, const char **out)
{
    *out = code == 39   ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
           : code == 35 ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
                        : "CUPTI_ERROR_UNKNOWN";
    return OK;
}

/* Callbacks are forgotten, as the real one forgets them. */
EXPORT int cuptiFinalize(void)
{
    ENTER(C_FINALIZE);
    if (lies)
        LEAVE(OK);
    request = NULL;
    complete = NULL;
    LEAVE(OK);
}

/* Nobody may call this: it is here to be counted. */

EXPORT int cuptiSubscribe(void **subscriber, void *callback, void *data)
{
    (void)callback, (void)data;
    ENTER(C_SUBSCRIBE);
    *subscriber = NULL;
    LEAVE(OK);
}
