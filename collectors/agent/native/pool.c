#include <sys/mman.h>

#include "records.h"

#define SLOTS 96
#define SPARES 32
#define SPARE_BYTES (64u << 10) /* a buffer beyond the cap, where none at all is not allowed */

#define POPULATE_WRITE 23 /* MADV_POPULATE_WRITE of Linux 5.14; older ones refuse it, which is fine */

/* NONE has no memory yet; BUSY is somebody between two states. */
enum { NONE, BUSY, FREE, LENT, DONE };

struct slot {
    _Atomic uint32_t state;
    _Atomic(uint8_t *) memory;
    size_t bytes, valid;
    uint64_t order;
    _Atomic int64_t lent_ns;
};

static struct slot slots[SLOTS];
static _Atomic size_t buffer_bytes;
static _Atomic uint32_t max_buffers;
static atomic_bool null_allowed, attended, pressed;
static _Atomic uint64_t completed;
struct pool_counts pool_counts;

void pool_configure(size_t bytes, uint32_t most)
{
    atomic_store(&buffer_bytes, bytes);
    atomic_store(&max_buffers, most < SLOTS - SPARES ? most : SLOTS - SPARES);
}

void pool_allow_null(bool allowed) { atomic_store(&null_allowed, allowed); }

void pool_attended(bool on) { atomic_store(&attended, on); }

/* The slot in state BUSY, or false when something else has it. */
static bool claim(struct slot *slot, uint32_t from)
{
    return atomic_compare_exchange_strong_explicit(&slot->state, &from, BUSY, memory_order_acquire,
                                                   memory_order_relaxed);
}

static void settle(struct slot *slot, uint32_t state)
{
    atomic_store_explicit(&slot->state, state, memory_order_release);
}

static bool map_slot(struct slot *slot, size_t bytes, int extra_flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    slot->bytes = bytes;
    atomic_store_explicit(&slot->memory, memory, memory_order_relaxed);
    atomic_fetch_add(&pool_counts.mapped_bytes, bytes);
    return true;
}

static bool lend(struct slot *slot, uint8_t **buffer, size_t *size)
{
    atomic_store_explicit(&slot->lent_ns, real_ns(), memory_order_relaxed);
    *buffer = atomic_load_explicit(&slot->memory, memory_order_relaxed);
    *size = slot->bytes;
    settle(slot, LENT);
    return true;
}

static bool lend_from(uint32_t first, uint32_t end, size_t bytes, uint8_t **buffer, size_t *size)
{
    for (uint32_t i = first; i < end; i++)
        if (atomic_load_explicit(&slots[i].state, memory_order_relaxed) == FREE &&
            claim(&slots[i], FREE))
            return lend(&slots[i], buffer, size);
    for (uint32_t i = first; i < end; i++) {
        if (atomic_load_explicit(&slots[i].state, memory_order_relaxed) != NONE ||
            !claim(&slots[i], NONE))
            continue;
        if (map_slot(&slots[i], bytes, 0))
            return lend(&slots[i], buffer, size);
        settle(&slots[i], NONE);
        return false;
    }
    return false;
}

void pool_request(uint8_t **buffer, size_t *size, size_t *max_records)
{
    *max_records = 0;
    atomic_fetch_add_explicit(&pool_counts.requests, 1, memory_order_relaxed);
    uint32_t cap = atomic_load(&max_buffers);
    if (lend_from(0, cap, atomic_load(&buffer_bytes), buffer, size))
        return;
    atomic_fetch_add(&pool_counts.refused, 1);
    atomic_store(&pressed, true);
    agent_wake();
    if (!atomic_load(&null_allowed) && lend_from(cap, cap + SPARES, SPARE_BYTES, buffer, size))
        return;
    *buffer = NULL;
    *size = 0;
}

void pool_complete(void *context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid)
{
    (void)context, (void)stream, (void)size;
    if (buffer == NULL)
        return;
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &slots[i];
        if (atomic_load_explicit(&slot->memory, memory_order_relaxed) != buffer)
            continue;
        if (!claim(slot, LENT))
            break;
        uint64_t order = atomic_fetch_add(&completed, 1);
        if (valid == 0 || !atomic_load(&attended)) {
            settle(slot, FREE);
            return;
        }
        slot->valid = valid < slot->bytes ? valid : slot->bytes;
        slot->order = order;
        settle(slot, DONE);
        agent_wake();
        return;
    }
    atomic_fetch_add(&pool_counts.foreign, 1);
}

void pool_warm(uint32_t count)
{
    uint32_t cap = atomic_load(&max_buffers);
    for (uint32_t i = 0; i < count && i < cap; i++) {
        if (claim(&slots[i], NONE)) {
            bool mapped = map_slot(&slots[i], atomic_load(&buffer_bytes), MAP_POPULATE);
            settle(&slots[i], mapped ? FREE : NONE);
        } else if (claim(&slots[i], FREE)) { /* trimmed, perhaps */
            madvise(atomic_load(&slots[i].memory), slots[i].bytes, POPULATE_WRITE);
            settle(&slots[i], FREE);
        }
    }
}

void pool_trim(void)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (!claim(&slots[i], FREE))
            continue;
        madvise(atomic_load(&slots[i].memory), slots[i].bytes, MADV_DONTNEED);
        settle(&slots[i], FREE);
    }
}

int pool_take(const uint8_t **buffer, size_t *valid)
{
    int oldest = -1;
    for (int i = 0; i < SLOTS; i++) {
        if (atomic_load_explicit(&slots[i].state, memory_order_acquire) != DONE)
            continue;
        if (oldest < 0 || slots[i].order < slots[oldest].order)
            oldest = i;
    }
    if (oldest >= 0) {
        *buffer = atomic_load_explicit(&slots[oldest].memory, memory_order_relaxed);
        *valid = slots[oldest].valid;
    }
    return oldest;
}

void pool_recycle(int slot) { settle(&slots[slot], FREE); }

int64_t pool_lent_since_ns(void)
{
    int64_t since = INT64_MAX;
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t state = atomic_load_explicit(&slots[i].state, memory_order_acquire);
        if (state != LENT && state != BUSY) /* busy: on its way back, and not readable yet */
            continue;
        int64_t lent = atomic_load_explicit(&slots[i].lent_ns, memory_order_relaxed);
        if (lent < since)
            since = lent;
    }
    return since;
}

bool pool_pressed(void) { return atomic_exchange(&pressed, false); }

void pool_forked(void)
{
    atomic_store(&attended, false);
    for (uint32_t i = 0; i < SLOTS; i++)
        if (atomic_load(&slots[i].state) != NONE && atomic_load(&slots[i].memory) != NULL)
            atomic_store(&slots[i].state, FREE);
}
