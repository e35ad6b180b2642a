#include "inbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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
    parcel->next = NULL;
    parcel->bytes = bytes;
    parcel->records = records;
    parcel->kind = kind;
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

void inbox_forked(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
    first = NULL;
    end = &first;
    held = 0;
}
