/* One thread that makes CUPTI's calls by a script, cycle after cycle, and notes when each began and
 * ended; no interpreter lock is near. Buffers come from a pool touched ahead, as the agent's do. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BUFFERS 96
#define IDS 1024
#define SETS 6
#define REFUSED_IN_A_ROW 64

typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(void *, uint32_t, uint8_t *, size_t, size_t);

/* The calls, in the order stalls.py names them. */
struct cupti {
    int (*register_callbacks)(request_fn, complete_fn);
    int (*enable)(uint32_t);
    int (*disable)(uint32_t);
    int (*enable_runtime)(uint32_t, uint8_t);
    int (*enable_driver)(uint32_t, uint8_t);
    int (*flush)(uint32_t);
    int (*finalize)(void);
    int (*set_attribute)(uint32_t, size_t *, void *);
};

enum op { REGISTER, ENABLE, DISABLE, RUNTIME_IDS, DRIVER_IDS, FLUSH, FINALIZE, WAIT, ATTRIBUTE };

struct step {
    int32_t op;
    uint32_t a;         /* kind, ids in one go (0: all), attribute */
    int64_t b;          /* microseconds of a wait or between goes; an attribute's value */
    int32_t keep, once; /* ids: the set that stays on; only in the first cycle */
};

struct stamp {
    int64_t began_ns, ended_ns, code;
};

static struct cupti cupti;
static uint8_t *buffers[BUFFERS];
static size_t buffer_bytes;
static atomic_int lent[BUFFERS];
static atomic_bool zeroed;
static uint32_t strides[64];
static uint8_t sets[SETS][IDS]; /* the first two: the runtime and the driver ids that are wanted */
static _Atomic uint64_t counts[64], unknown, wanted_rows[2], dry;
static const struct step *steps;
static struct stamp *stamps;
static int step_count, cycles;
atomic_int stalls_done = 1;

int64_t stalls_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void request(uint8_t **buffer, size_t *size, size_t *records)
{
    *records = 0;
    for (int i = 0; i < BUFFERS; i++) {
        int none = 0;
        if (!atomic_compare_exchange_strong(&lent[i], &none, 1))
            continue;
        *buffer = buffers[i];
        *size = buffer_bytes;
        return;
    }
    atomic_fetch_add(&dry, 1);
    *buffer = aligned_alloc(8, buffer_bytes);
    *size = buffer_bytes;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    for (size_t at = 0; at + 8 <= valid;) {
        uint32_t kind, cbid;
        memcpy(&kind, buffer + at, 4);
        memcpy(&cbid, buffer + at + 4, 4);
        if (kind >= 64 || strides[kind] == 0) {
            atomic_fetch_add(&unknown, 1);
            break;
        }
        atomic_fetch_add(&counts[kind], 1);
        if ((kind == 4 || kind == 5) && cbid < IDS)
            atomic_fetch_add(&wanted_rows[kind == 4], sets[kind == 4][cbid]);
        at += strides[kind];
    }
    if (atomic_load(&zeroed))
        memset(buffer, 0, valid);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i] == buffer) {
            atomic_store(&lent[i], 0);
            return;
        }
    free(buffer);
}

int stalls_setup(const struct cupti *calls, const uint32_t *record_bytes, const uint8_t *ids, size_t bytes)
{
    cupti = *calls;
    buffer_bytes = bytes;
    memcpy(strides, record_bytes, sizeof strides);
    memcpy(sets, ids, sizeof sets);
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = aligned_alloc(4096, bytes);
        if (buffers[i] == NULL)
            return -1;
        memset(buffers[i], 0, bytes);
    }
    return 0;
}

static void pause_us(int64_t us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

static int64_t set_ids(const struct step *step)
{
    int driver = step->op == DRIVER_IDS, refused = 0;
    int (*set)(uint32_t, uint8_t) = driver ? cupti.enable_driver : cupti.enable_runtime;
    int64_t made = 0;
    for (uint32_t id = 1; id < IDS && refused < REFUSED_IN_A_ROW; id++) {
        if (sets[step->keep][id])
            continue;
        refused = set(id, 0) == 0 ? 0 : refused + 1;
        made += refused == 0;
        if (step->a != 0 && made % step->a == 0)
            pause_us(step->b);
    }
    return -made; /* a code is never below 0 */
}

static int64_t make(const struct step *step)
{
    int64_t value = step->b;
    size_t bytes;
    switch (step->op) {
    case REGISTER: return cupti.register_callbacks(request, complete);
    case ENABLE: return cupti.enable(step->a);
    case DISABLE: return cupti.disable(step->a);
    case RUNTIME_IDS:
    case DRIVER_IDS: return set_ids(step);
    case FLUSH: return cupti.flush(0);
    case FINALIZE: return cupti.finalize();
    case ATTRIBUTE:
        bytes = step->a == 5 || step->a == 8 || step->a == 9 ? 1 : sizeof(size_t);
        if (step->a == 5)
            atomic_store(&zeroed, value != 0);
        return cupti.set_attribute(step->a, &bytes, &value);
    default: pause_us(step->b); return 0;
    }
}

static void *play(void *unused)
{
    for (int cycle = 0; cycle < cycles; cycle++)
        for (int i = 0; i < step_count; i++) {
            struct stamp *stamp = &stamps[cycle * step_count + i];
            stamp->began_ns = stalls_now();
            stamp->code = steps[i].once && cycle ? 0 : make(&steps[i]);
            stamp->ended_ns = stalls_now();
        }
    atomic_store(&stalls_done, 1);
    return unused;
}

int stalls_start(const struct step *script, int count, int times, struct stamp *out)
{
    pthread_t thread;
    steps = script, step_count = count, cycles = times, stamps = out;
    atomic_store(&stalls_done, 0);
    int failed = pthread_create(&thread, NULL, play, NULL);
    if (!failed)
        pthread_detach(thread);
    return failed;
}

void stalls_rows(uint64_t *out)
{
    for (int i = 0; i < 64; i++)
        out[i] = atomic_load(&counts[i]);
    out[64] = atomic_load(&wanted_rows[0]);
    out[65] = atomic_load(&wanted_rows[1]);
    out[66] = atomic_load(&unknown);
    out[67] = atomic_load(&dry);
}
