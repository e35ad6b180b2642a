#include "scan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "interned.h"
#include "json.h"
#include "times.h"

enum { MOST_KEYS = 64, KEY_BUCKETS = 256, MOST_CATEGORIES = 64, MOST_OTHERS = 1000, LONGEST_KEY = 47 };

struct span {
    const char *text;
    size_t length;
};

struct key {
    char text[LONGEST_KEY + 1];
    size_t length;
    int kind, slot;
};

struct table {
    int slots[BRRR_MOST_SLOTS];
    int64_t *values[BRRR_MOST_SLOTS];
    int column_count;
    size_t rows, room, kept; /* kept: rows before the run that is being read */
};

struct category {
    char text[LONGEST_KEY + 1];
    size_t length;
    int table;
};

/* The last token of each place, since a thread's events follow each other. */
struct recent {
    char text[32];
    size_t length;
    int64_t number;
};

struct brrr_scan {
    struct key keys[MOST_KEYS];
    int key_count;
    uint8_t key_buckets[KEY_BUCKETS]; /* number + 1; 0: free */
    int64_t absent[BRRR_MOST_SLOTS];
    int slot_count;
    struct category categories[MOST_CATEGORIES];
    int category_count;
    int raw_count;
    struct table tables[BRRR_MOST_TABLES];
    struct interned tokens, signatures, others; /* others: categories of no table */
    char last_other[LONGEST_KEY + 1];
    size_t last_other_length;
    struct recent recent[FIRST_ARGUMENT];
    char *signature; /* room to build one */
    size_t signature_room;
};

struct event {
    int table; /* -1: of no interest */
    struct moment start, duration;
    bool has_duration, has_arguments;
    struct span category, name, process, thread;
    struct span raw[BRRR_MOST_RAW];
    int64_t values[BRRR_MOST_SLOTS];
};

struct cursor {
    const char *at, *end;
};

#ifndef BRRR_FINGERPRINT
#define BRRR_FINGERPRINT "unknown"
#endif

/* Found in the file by whoever asks whether it is older than its sources; exported, or a linker drops it. */
__attribute__((visibility("default"))) const char brrr_scanner_fingerprint[] = "brrrtop-sources:" BRRR_FINGERPRINT;

/* --- what is wanted ---------------------------------------------------------- */

struct brrr_scan *brrr_scan_new(uint64_t seed) {
    struct brrr_scan *scan = calloc(1, sizeof *scan);
    if (scan) scan->tokens.seed = scan->signatures.seed = scan->others.seed = seed;
    return scan;
}

void brrr_scan_free(struct brrr_scan *scan) {
    if (!scan) return;
    for (int t = 0; t < BRRR_MOST_TABLES; t++)
        for (int c = 0; c < scan->tables[t].column_count; c++) free(scan->tables[t].values[c]);
    interned_free(&scan->tokens);
    interned_free(&scan->signatures);
    interned_free(&scan->others);
    free(scan->signature);
    free(scan);
}

static unsigned key_bucket(const char *text, size_t length) {
    if (!length) return 0;
    unsigned first = (unsigned char)text[0], last = (unsigned char)text[length - 1];
    unsigned middle = (unsigned char)text[length / 2];
    return ((unsigned)length * 37 + first * 11 + last * 5 + middle * 3) % KEY_BUCKETS;
}

int brrr_scan_argument(struct brrr_scan *scan, const char *text, int kind, int slot,
                       int64_t absent) {
    size_t length = strlen(text);
    bool raw = kind == KIND_RAW;
    int last = slot + (kind == KIND_THREE ? 2 : 0);
    if (scan->key_count == MOST_KEYS || length == 0 || length > LONGEST_KEY) return -1;
    if (kind < KIND_INTEGER || kind > KIND_RAW || slot < (raw ? 0 : FIRST_ARGUMENT)) return -1;
    if (last >= (raw ? BRRR_MOST_RAW : BRRR_MOST_SLOTS)) return -1;
    struct key *key = &scan->keys[scan->key_count++];
    memcpy(key->text, text, length + 1);
    key->length = length;
    key->kind = kind;
    key->slot = slot;
    if (raw && slot >= scan->raw_count) scan->raw_count = slot + 1;
    for (int s = slot; !raw && s <= last; s++) scan->absent[s] = absent;
    if (!raw && last >= scan->slot_count) scan->slot_count = last + 1;
    unsigned bucket = key_bucket(text, length);
    while (scan->key_buckets[bucket]) bucket = (bucket + 1) % KEY_BUCKETS;
    scan->key_buckets[bucket] = (uint8_t)scan->key_count;
    return 0;
}

int brrr_scan_category(struct brrr_scan *scan, const char *name, int table) {
    size_t length = strlen(name);
    if (scan->category_count == MOST_CATEGORIES || length > LONGEST_KEY) return -1;
    if (table < 0 || table >= BRRR_MOST_TABLES) return -1;
    struct category *category = &scan->categories[scan->category_count++];
    memcpy(category->text, name, length + 1);
    category->length = length;
    category->table = table;
    return 0;
}

int brrr_scan_column(struct brrr_scan *scan, int table, int slot) {
    if (table < 0 || table >= BRRR_MOST_TABLES || slot < 0 || slot >= BRRR_MOST_SLOTS) return -1;
    struct table *into = &scan->tables[table];
    if (into->column_count == BRRR_MOST_SLOTS || into->room) return -1;
    into->slots[into->column_count++] = slot;
    return 0;
}

/* --- what was read ------------------------------------------------------------- */

size_t brrr_scan_rows(const struct brrr_scan *scan, int table) {
    return scan->tables[table].rows;
}

const int64_t *brrr_scan_values(const struct brrr_scan *scan, int table, int column) {
    return scan->tables[table].values[column];
}

void brrr_scan_clear(struct brrr_scan *scan, int table) {
    scan->tables[table].rows = 0;
}

static const struct interned *texts(const struct brrr_scan *scan, int which) {
    if (which == TEXT_CATEGORY) return &scan->others;
    return which == TEXT_TOKEN ? &scan->tokens : &scan->signatures;
}

size_t brrr_scan_text_count(const struct brrr_scan *scan, int which) {
    return texts(scan, which)->count;
}

const char *brrr_scan_text(const struct brrr_scan *scan, int which, size_t number, size_t *length) {
    return interned_text(texts(scan, which), number, length);
}

/* `memcmp` for texts as short as keys, without a call. */
static inline bool same(const char *one, const char *other, size_t length) {
    uint64_t a, b;
    if (length > 16) return memcmp(one, other, length) == 0;
    if (length >= 8) {
        memcpy(&a, one, 8), memcpy(&b, other, 8);
        if (a != b) return false;
        memcpy(&a, one + length - 8, 8), memcpy(&b, other + length - 8, 8);
        return a == b;
    }
    for (size_t i = 0; i < length; i++)
        if (one[i] != other[i]) return false;
    return true;
}

/* --- reading ---------------------------------------------------------------------- */

/* Without a look at single values: most of a trace is integers. */
static bool read_integer(struct cursor *cursor, int64_t *value) {
    const char *at = cursor->at;
    bool negative = *at == '-';
    at += negative;
    const char *digits = at;
    uint64_t sum = 0;
    while (*at >= '0' && *at <= '9' && at - digits < 19) sum = sum * 10 + (uint64_t)(*at++ - '0');
    if (at == digits || (*digits == '0' && at - digits > 1) || sum > INT64_MAX) return false;
    if ((*at >= '0' && *at <= '9') || *at == '.' || (*at | 0x20) == 'e') return false;
    *value = negative ? -(int64_t)sum : (int64_t)sum;
    cursor->at = at;
    return true;
}

static bool read_three(struct cursor *cursor, int64_t *values) {
    if (*cursor->at != '[') return false;
    for (int i = 0; i < 3; i++) {
        cursor->at = json_space(cursor->at + 1);
        if (!read_integer(cursor, &values[i])) return false;
        cursor->at = json_space(cursor->at);
        if (*cursor->at != (i < 2 ? ',' : ']')) return false;
    }
    cursor->at++;
    return true;
}

/* A string; its span is with the quotes. */
static bool read_string(struct cursor *cursor, struct span *span, bool *escaped) {
    if (*cursor->at != '"') return false;
    const char *start = cursor->at;
    cursor->at = json_string(start + 1, cursor->end, escaped);
    if (!cursor->at) return false;
    *span = (struct span){start, (size_t)(cursor->at - start)};
    return true;
}

static bool read_id(struct cursor *cursor, struct span *span) {
    bool escaped = false;
    int64_t value;
    const char *start = cursor->at;
    if (*start == '"') return read_string(cursor, span, &escaped);
    if (!read_integer(cursor, &value)) return false;
    *span = (struct span){start, (size_t)(cursor->at - start)};
    return true;
}

static bool read_time(struct cursor *cursor, struct moment *moment) {
    struct number number;
    cursor->at = json_number(cursor->at, &number);
    return cursor->at && moment_of(&number, moment);
}

static bool read_value(struct cursor *cursor) {
    cursor->at = json_value(cursor->at, cursor->end, 1);
    return cursor->at != NULL;
}

/* A key and its colon; false for escapes in it, too: it might be a key we want. */
static bool read_key(struct cursor *cursor, struct span *key) {
    bool escaped = false;
    if (!read_string(cursor, key, &escaped) || escaped) return false;
    key->text++;
    key->length -= 2;
    cursor->at = json_space(cursor->at);
    if (*cursor->at != ':') return false;
    cursor->at = json_space(cursor->at + 1);
    return true;
}

/* Behind a member: true when there is another one; at the end `*closed` is set. */
static bool another(struct cursor *cursor, bool *closed) {
    cursor->at = json_space(cursor->at);
    *closed = *cursor->at == '}';
    if (!*closed && *cursor->at != ',') return false;
    cursor->at++;
    if (!*closed) cursor->at = json_space(cursor->at);
    return !*closed;
}

static const struct key *key_of(const struct brrr_scan *scan, struct span text) {
    unsigned bucket = key_bucket(text.text, text.length);
    for (; scan->key_buckets[bucket]; bucket = (bucket + 1) % KEY_BUCKETS) {
        const struct key *key = &scan->keys[scan->key_buckets[bucket] - 1];
        if (key->length == text.length && same(key->text, text.text, text.length)) return key;
    }
    return NULL;
}

static bool read_argument(struct cursor *cursor, const struct key *key, struct event *event) {
    const char *start = cursor->at;
    switch (key->kind) {
    case KIND_INTEGER:
        return read_integer(cursor, &event->values[key->slot]);
    case KIND_THREE:
        return read_three(cursor, &event->values[key->slot]);
    default:
        if (!read_value(cursor)) return false;
        event->raw[key->slot] = (struct span){start, (size_t)(cursor->at - start)};
        return true;
    }
}

static bool read_arguments(const struct brrr_scan *scan, struct cursor *cursor,
                           struct event *event) {
    if (*cursor->at != '{') return false;
    event->has_arguments = true;
    memcpy(event->values, scan->absent, (size_t)scan->slot_count * sizeof *scan->absent);
    memset(event->raw, 0, (size_t)scan->raw_count * sizeof *event->raw);
    cursor->at = json_space(cursor->at + 1);
    bool closed = *cursor->at == '}';
    if (closed) {
        cursor->at++;
        return true;
    }
    do {
        struct span text;
        if (!read_key(cursor, &text)) return false;
        const struct key *key = key_of(scan, text);
        if (key ? !read_argument(cursor, key, event) : !read_value(cursor)) return false;
    } while (another(cursor, &closed));
    return closed;
}

static inline bool is(struct span text, const char *word, size_t length) {
    return text.length == length && same(text.text, word, length);
}

static bool read_category(const struct brrr_scan *scan, struct cursor *cursor,
                          struct event *event) {
    struct span text;
    bool escaped = false;
    if (!read_string(cursor, &text, &escaped) || escaped) return false;
    event->category = text;
    event->table = -1;
    for (int i = 0; i < scan->category_count; i++) {
        const struct category *one = &scan->categories[i];
        if (is((struct span){text.text + 1, text.length - 2}, one->text, one->length)) {
            event->table = one->table;
            break;
        }
    }
    return true;
}

static bool read_member(const struct brrr_scan *scan, struct cursor *cursor, struct span key,
                        struct event *event) {
    bool escaped = false;
    struct span unused;
    if (is(key, "ts", 2)) return read_time(cursor, &event->start);
    if (is(key, "ph", 2)) return read_string(cursor, &unused, &escaped);
    if (is(key, "cat", 3)) return read_category(scan, cursor, event);
    if (is(key, "pid", 3)) return read_id(cursor, &event->process);
    if (is(key, "tid", 3)) return read_id(cursor, &event->thread);
    if (is(key, "name", 4)) return read_string(cursor, &event->name, &escaped);
    if (is(key, "args", 4)) return read_arguments(scan, cursor, event);
    if (is(key, "dur", 3)) {
        event->has_duration = true;
        return read_time(cursor, &event->duration);
    }
    return read_value(cursor);
}

static bool read_event(const struct brrr_scan *scan, struct cursor *cursor, struct event *event) {
    event->table = -1;
    event->start = (struct moment){-1000, -1000, false};
    event->has_duration = event->has_arguments = false;
    event->name = event->category = (struct span){"\"\"", 2};
    event->process = event->thread = (struct span){"0", 1};
    if (*cursor->at != '{') return false;
    cursor->at = json_space(cursor->at + 1);
    bool closed = *cursor->at == '}';
    if (closed) {
        cursor->at++;
        return true;
    }
    do {
        struct span key;
        if (!read_key(cursor, &key) || !read_member(scan, cursor, key, event)) return false;
    } while (another(cursor, &closed));
    return closed;
}

/* --- keeping ------------------------------------------------------------------------- */

static bool more_room(struct table *table) {
    size_t room = table->room ? 2 * table->room : 1024;
    for (int c = 0; c < table->column_count; c++) {
        int64_t *larger = realloc(table->values[c], room * sizeof *larger);
        if (!larger) return false;
        table->values[c] = larger;
    }
    table->room = room;
    return true;
}

static int64_t token_number(struct brrr_scan *scan, struct span token, int slot) {
    struct recent *recent = &scan->recent[slot];
    if (recent->length == token.length && same(recent->text, token.text, token.length))
        return recent->number;
    int64_t number = interned_number(&scan->tokens, token.text, token.length);
    if (number >= 0 && token.length <= sizeof recent->text) {
        memcpy(recent->text, token.text, token.length);
        recent->length = token.length;
        recent->number = number;
    }
    return number;
}

static struct span raw_of(const struct event *event, int place) {
    return event->has_arguments ? event->raw[place] : (struct span){NULL, 0};
}

static int64_t signature_number(struct brrr_scan *scan, const struct event *event) {
    int64_t name = token_number(scan, event->name, SLOT_NAME);
    if (name < 0) return -1;
    size_t needed = 4 + 4 * (size_t)scan->raw_count;
    for (int i = 0; i < scan->raw_count; i++) {
        struct span raw = raw_of(event, i);
        if (raw.length > UINT32_MAX) return -1;
        needed += raw.length;
    }
    if (needed > scan->signature_room) {
        char *larger = realloc(scan->signature, 2 * needed);
        if (!larger) return -1;
        scan->signature = larger;
        scan->signature_room = 2 * needed;
    }
    char *to = scan->signature;
    uint32_t word = (uint32_t)name;
    memcpy(to, &word, 4);
    to += 4;
    for (int i = 0; i < scan->raw_count; i++) {
        struct span raw = raw_of(event, i);
        word = (uint32_t)raw.length;
        memcpy(to, &word, 4);
        to += 4;
        if (word) memcpy(to, raw.text, word);
        to += word;
    }
    return interned_number(&scan->signatures, scan->signature, needed);
}

static int64_t value_of(struct brrr_scan *scan, const struct event *event, int slot) {
    switch (slot) {
    case SLOT_START:
        return event->start.ns;
    case SLOT_SPAN:
        if (!event->has_duration) return -1;
        return event->start.needs_text ? event->duration.text_ns : event->duration.ns;
    case SLOT_NAME:
        return token_number(scan, event->name, slot);
    case SLOT_PROCESS:
        return token_number(scan, event->process, slot);
    case SLOT_THREAD:
        return token_number(scan, event->thread, slot);
    case SLOT_SIGNATURE:
        return signature_number(scan, event);
    default:
        return event->has_arguments ? event->values[slot] : scan->absent[slot];
    }
}

static bool keep(struct brrr_scan *scan, const struct event *event) {
    struct table *table = &scan->tables[event->table];
    if (table->rows == table->room && !more_room(table)) return false;
    for (int c = 0; c < table->column_count; c++) {
        int slot = table->slots[c];
        int64_t value = value_of(scan, event, slot);
        if (value < 0 && slot >= SLOT_NAME && slot <= SLOT_SIGNATURE) return false;
        table->values[c][table->rows] = value;
    }
    table->rows++;
    return true;
}

static bool keep_category(struct brrr_scan *scan, struct span category) {
    if (category.length == scan->last_other_length &&
        same(category.text, scan->last_other, category.length))
        return true;
    if (scan->others.count >= MOST_OTHERS || category.length > LONGEST_KEY) return true;
    if (interned_number(&scan->others, category.text, category.length) < 0) return false;
    memcpy(scan->last_other, category.text, category.length);
    scan->last_other_length = category.length;
    return true;
}

static int64_t read_run(struct brrr_scan *scan, struct cursor *cursor) {
    struct event event;
    int64_t count = 0;
    cursor->at = json_space(cursor->at);
    if (cursor->at == cursor->end) return 0;
    for (;;) {
        if (!read_event(scan, cursor, &event)) return BRRR_NOT_PLAIN;
        count++;
        bool kept = event.table < 0 ? keep_category(scan, event.category) : keep(scan, &event);
        if (!kept) return BRRR_NO_MEMORY;
        cursor->at = json_space(cursor->at);
        if (cursor->at == cursor->end) return count;
        if (*cursor->at != ',') return BRRR_NOT_PLAIN;
        cursor->at = json_space(cursor->at + 1);
    }
}

int64_t brrr_scan_run(struct brrr_scan *scan, const char *text, size_t length) {
    struct cursor cursor = {text, text + length};
    for (int t = 0; t < BRRR_MOST_TABLES; t++) scan->tables[t].kept = scan->tables[t].rows;
    int64_t count = read_run(scan, &cursor);
    for (int t = 0; count < 0 && t < BRRR_MOST_TABLES; t++)
        scan->tables[t].rows = scan->tables[t].kept;
    return count;
}
