#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "records.h"

#define MOST_IDS (1u << 16)
#define MOST_BYTES (3u << 20)
#define EDITIONS 16u /* an id says of which table it is: one kept too long means nothing, never another name */

struct name {
    char *text;
    uint64_t hash;
    uint32_t bytes;
};

static struct table {
    struct name *rows;   /* row 0 is the empty name */
    uint32_t *buckets;   /* open addressing, 0: empty */
    uint32_t last, room, bucket_count;
    uint64_t bytes, refused;
    uint32_t edition;
} table;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static char *(*demangle)(const char *, char *, size_t *, int *);

static uint64_t hash_of(const char *text, size_t bytes)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)text[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint32_t *bucket_for(const char *text, size_t bytes, uint64_t hash)
{
    uint32_t mask = table.bucket_count - 1, at = (uint32_t)(hash ^ hash >> 32) & mask;
    for (;; at = (at + 1) & mask) {
        uint32_t id = table.buckets[at];
        if (id == 0)
            return &table.buckets[at];
        const struct name *row = &table.rows[id];
        if (row->hash == hash && row->bytes == bytes && memcmp(row->text, text, bytes) == 0)
            return &table.buckets[at];
    }
}

static int grow(void)
{
    uint32_t room = table.room ? table.room * 2 : 512;
    struct name *rows = realloc(table.rows, room * sizeof *rows);
    if (rows == NULL)
        return 0;
    table.rows = rows;
    uint32_t *buckets = calloc(room * 2, sizeof *buckets);
    if (buckets == NULL)
        return 0;
    free(table.buckets);
    table.buckets = buckets;
    table.bucket_count = room * 2;
    table.room = room;
    for (uint32_t id = 1; id <= table.last; id++)
        *bucket_for(rows[id].text, rows[id].bytes, rows[id].hash) = id;
    return 1;
}

static uint32_t add_locked(const char *text, size_t bytes, uint64_t hash)
{
    if (table.room != 0) {
        uint32_t id = *bucket_for(text, bytes, hash);
        if (id != 0)
            return id | table.edition << 16;
    }
    bool full = table.last + 1 >= MOST_IDS || table.bytes + bytes > MOST_BYTES;
    bool fits = !full && (table.last + 1 < table.room || grow());
    char *copy = fits ? malloc(bytes) : NULL;
    if (copy == NULL) {
        table.refused++;
        return 0;
    }
    memcpy(copy, text, bytes);
    uint32_t id = ++table.last;
    table.rows[id] = (struct name){copy, hash, (uint32_t)bytes};
    table.bytes += bytes;
    *bucket_for(text, bytes, hash) = id;
    return id | table.edition << 16;
}

uint32_t names_add(const char *text, size_t bytes)
{
    if (bytes == 0)
        return 0;
    if (bytes > NAME_LONGEST) {
        bytes = NAME_LONGEST; /* never half a UTF-8 character */
        while (bytes > 1 && ((uint8_t)text[bytes] & 0xC0) == 0x80)
            bytes--;
    }
    uint64_t hash = hash_of(text, bytes);
    pthread_mutex_lock(&lock);
    uint32_t id = add_locked(text, bytes, hash);
    pthread_mutex_unlock(&lock);
    return id;
}

void names_find_demangler(void)
{
    if (demangle != NULL)
        return;
    void *library = dlopen("libstdc++.so.6", RTLD_NOLOAD | RTLD_LAZY);
    if (library != NULL)
        *(void **)&demangle = dlsym(library, "__cxa_demangle");
}

/* Where reading one's own memory by the next call is forbidden: through a socket, which needs no
 * permission and answers EFAULT as well. */
static ssize_t copy_by_socket(const char *from, char *into, size_t wanted)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
        return -1;
    ssize_t got = send(ends[0], from, wanted, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (got > 0)
        got = recv(ends[1], into, (size_t)got, MSG_DONTWAIT);
    close(ends[0]);
    close(ends[1]);
    return got;
}

/* Copies a text that may lie in a module that was unloaded meanwhile: the kernel does the reading, and
 * says so instead of raising a signal in the trainer. Returns its length, or -1. */
static ssize_t copy_text(const char *from, char *into, size_t room)
{
    size_t have = 0;
    while (have < room) {
        size_t page_left = 4096 - ((uintptr_t)(from + have) & 4095);
        size_t wanted = page_left < room - have ? page_left : room - have;
        struct iovec there = {(void *)(uintptr_t)(from + have), wanted}, here = {into + have, wanted};
        ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
        if (got < 0 && errno != EFAULT)
            got = copy_by_socket(from + have, into + have, wanted);
        if (got <= 0)
            return -1;
        size_t text = strnlen(into + have, (size_t)got);
        have += text;
        if (text < (size_t)got)
            break;
    }
    return (ssize_t)have;
}

uint32_t names_add_kernel(const char *pointer)
{
    static char mangled[NAME_LONGEST + 2];
    ssize_t length = copy_text(pointer, mangled, NAME_LONGEST + 1);
    if (length < 0) {
        pthread_mutex_lock(&lock);
        table.refused++;
        pthread_mutex_unlock(&lock);
        return 0;
    }
    size_t bytes = (size_t)length;
    mangled[bytes] = '\0';
    if (demangle != NULL && bytes <= NAME_LONGEST && bytes > 2 && mangled[0] == '_' &&
        mangled[1] == 'Z') {
        int status = -1;
        char *plain = demangle(mangled, NULL, NULL, &status);
        bool good = plain != NULL && status == 0;
        uint32_t id = good ? names_add(plain, strnlen(plain, NAME_LONGEST + 1)) : names_add(mangled, bytes);
        free(plain);
        return id;
    }
    return names_add(mangled, bytes);
}

struct name_counts names_count(void)
{
    pthread_mutex_lock(&lock);
    struct name_counts now = {
        .last = table.last,
        .refused = table.refused,
        .bytes = table.bytes + table.room * (sizeof(struct name) + 2 * sizeof(uint32_t)),
        .crowded = table.last >= MOST_IDS / 2 || table.bytes >= MOST_BYTES / 2,
    };
    pthread_mutex_unlock(&lock);
    return now;
}

void names_begin_anew(void)
{
    pthread_mutex_lock(&lock);
    for (uint32_t id = 1; id <= table.last; id++)
        free(table.rows[id].text);
    free(table.rows);
    free(table.buckets);
    table = (struct table){.refused = table.refused, .edition = (table.edition + 1) % EDITIONS};
    pthread_mutex_unlock(&lock);
}

size_t names_write(uint32_t first, uint8_t *out, size_t room, uint32_t *last)
{
    size_t at = 0;
    pthread_mutex_lock(&lock);
    *last = first - 1;
    for (uint32_t id = first; id <= table.last; id++) {
        uint32_t told = id | table.edition << 16, bytes = table.rows[id].bytes;
        if (at + 8 + bytes > room)
            break;
        memcpy(out + at, &told, 4);
        memcpy(out + at + 4, &bytes, 4);
        memcpy(out + at + 8, table.rows[id].text, bytes);
        at += 8 + bytes;
        *last = id;
    }
    pthread_mutex_unlock(&lock);
    return at;
}

/* Leaves the table to its fate. */
void names_forked(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(&table, 0, sizeof table);
}
