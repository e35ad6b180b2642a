#include "records.h"

#define MOST_BYTES (2u << 20)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct parcel *first, **end = &first;
static size_t held;

bool inbox_put(uint16_t kind, const void *payload, uint32_t bytes, uint32_t records)
{
    if (bytes > MOST_BYTES)
        return false;
    struct parcel *parcel = malloc(sizeof *parcel + bytes + 1);
    if (parcel == NULL)
        return false;
    *parcel = (struct parcel){.bytes = bytes, .records = records, .kind = kind};
    memcpy(parcel->payload, payload, bytes);
    parcel->payload[bytes] = '\0';
    pthread_mutex_lock(&lock);
    bool fits = held + bytes <= MOST_BYTES;
    if (fits) {
        held += bytes;
        *end = parcel;
        end = &parcel->next;
    }
    pthread_mutex_unlock(&lock);
    if (!fits)
        free(parcel);
    return fits;
}

struct parcel *inbox_take(void)
{
    pthread_mutex_lock(&lock);
    struct parcel *all = first;
    first = NULL;
    end = &first;
    held = 0;
    pthread_mutex_unlock(&lock);
    return all;
}

#define ROOM 16384u

/* Vyukov's bounded queue: `lap` says whose move a cell is, counted from its place in the ring, so that
 * memory nobody has touched is an empty ring. */
struct cell {
    _Atomic uint64_t lap;
    struct wire_mark mark;
};

static struct cell cells[ROOM];
static _Atomic uint64_t tail, head, lost;
static bool torn;

static uint64_t turn_of(struct cell *cell, uint64_t at)
{
    return atomic_load_explicit(&cell->lap, memory_order_acquire) + at % ROOM;
}

static void set_turn(struct cell *cell, uint64_t at, uint64_t turn)
{
    atomic_store_explicit(&cell->lap, turn - at % ROOM, memory_order_release);
}

void marks_begin(void)
{
    if (!torn)
        return;
    torn = false;
    for (uint64_t i = 0; i < ROOM; i++)
        atomic_store_explicit(&cells[i].lap, 0, memory_order_relaxed);
    atomic_store(&tail, 0);
    atomic_store(&head, 0);
}

bool marks_put(const struct wire_mark *mark)
{
    uint64_t at = atomic_load_explicit(&tail, memory_order_relaxed);
    for (;;) {
        struct cell *cell = &cells[at % ROOM];
        uint64_t turn = turn_of(cell, at);
        if (turn == at) {
            if (atomic_compare_exchange_weak_explicit(&tail, &at, at + 1, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                cell->mark = *mark;
                set_turn(cell, at, at + 1);
                return true;
            }
        } else if ((int64_t)(turn - at) < 0) {
            atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
            return false;
        } else {
            at = atomic_load_explicit(&tail, memory_order_relaxed);
        }
    }
}

bool marks_take(struct wire_mark *out)
{
    uint64_t at = atomic_load_explicit(&head, memory_order_relaxed);
    struct cell *cell = &cells[at % ROOM];
    if (turn_of(cell, at) != at + 1)
        return false;
    *out = cell->mark;
    set_turn(cell, at, at + ROOM);
    atomic_store_explicit(&head, at + 1, memory_order_relaxed);
    return true;
}

uint64_t marks_lost(void) { return atomic_load(&lost); }

/* Leaves the ring as it is, 786 KB that nobody there may want: marks_begin makes it good. */
void inbox_forked(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    first = NULL;
    end = &first;
    held = 0;
    torn = true;
}
