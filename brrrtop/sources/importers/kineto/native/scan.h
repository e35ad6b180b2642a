/* Text of trace events → columns of 64-bit numbers, one set a table.
 *
 * It reads only what is written as profilers write it, and reads that as the slow way in Python
 * does. For everything else (text that is no JSON, values of another type, escapes in keys, numbers
 * beyond 64 bits) `brrr_scan_run` says BRRR_NOT_PLAIN, takes nothing in, and the slow way decides.
 */
#ifndef BRRR_SCAN_H
#define BRRR_SCAN_H

#include <stddef.h>
#include <stdint.h>

#define BRRR_API __attribute__((visibility("default")))

/* What every event has; a column names one of these, or an argument's slot from FIRST_ARGUMENT on. */
enum brrr_slot {
    SLOT_START,     /* ns */
    SLOT_SPAN,      /* ns; negative: absent */
    SLOT_NAME,      /* number of a token */
    SLOT_PROCESS,   /* number of a token */
    SLOT_THREAD,    /* number of a token */
    SLOT_SIGNATURE, /* number of a signature */
    FIRST_ARGUMENT
};
enum { BRRR_MOST_SLOTS = 64, BRRR_MOST_TABLES = 16, BRRR_MOST_RAW = 8 };

enum brrr_kind {
    KIND_INTEGER,
    KIND_THREE, /* a list of three integers, in this slot and the next two */
    KIND_RAW    /* any value, as text, part of the signature; its slot is its place there */
};

enum brrr_result { BRRR_NOT_PLAIN = -1, BRRR_NO_MEMORY = -2 };

/* A token is a JSON string with its quotes, or an integer, as written. A signature is the number of the
 * name's token and then each raw argument, each as four bytes of length and its text (absent: 0). */
enum brrr_text { TEXT_TOKEN, TEXT_SIGNATURE, TEXT_CATEGORY /* of no table, as a token */ };

struct brrr_scan;

BRRR_API struct brrr_scan *brrr_scan_new(uint64_t seed);
BRRR_API void brrr_scan_free(struct brrr_scan *scan);

/* 0, or -1 where it is one too many. */
BRRR_API int brrr_scan_argument(struct brrr_scan *scan, const char *key, int kind, int slot,
                                int64_t absent);
BRRR_API int brrr_scan_category(struct brrr_scan *scan, const char *name, int table);
BRRR_API int brrr_scan_column(struct brrr_scan *scan, int table, int slot);

/* Events between commas; `text[length]` is a NUL. How many events it had, or a brrr_result. */
BRRR_API int64_t brrr_scan_run(struct brrr_scan *scan, const char *text, size_t length);

BRRR_API size_t brrr_scan_rows(const struct brrr_scan *scan, int table);
/* The values of a table's column, good until the next run. */
BRRR_API const int64_t *brrr_scan_values(const struct brrr_scan *scan, int table, int column);
BRRR_API void brrr_scan_clear(struct brrr_scan *scan, int table);

BRRR_API size_t brrr_scan_text_count(const struct brrr_scan *scan, int which);
BRRR_API const char *brrr_scan_text(const struct brrr_scan *scan, int which, size_t number,
                                    size_t *length);

#endif
