#include "json.h"

#include <stddef.h>
#include <string.h>

#if defined(__SSE2__) && !defined(BRRR_WITHOUT_SSE2)
#include <emmintrin.h>

#define STRIDE 16

/* How many of the next STRIDE bytes are plain: no quote, backslash, control, or byte of a longer
 * character, all of which but the first two are below 0x20 as signed numbers. */
static inline int plain_bytes(const char *at) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)at);
    __m128i hits = _mm_or_si128(_mm_cmplt_epi8(bytes, _mm_set1_epi8(0x20)),
                                _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8('"')),
                                             _mm_cmpeq_epi8(bytes, _mm_set1_epi8('\\'))));
    unsigned mask = (unsigned)_mm_movemask_epi8(hits);
    return mask ? __builtin_ctz(mask) : STRIDE;
}
#else
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the first byte of a word has to be its lowest"
#endif

#define STRIDE 8
#define EACH(byte) (0x0101010101010101ULL * (byte))

static inline int plain_bytes(const char *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    uint64_t quote = word ^ EACH('"'), slash = word ^ EACH('\\');
    uint64_t hits = ((quote - EACH(1)) & ~quote) | ((slash - EACH(1)) & ~slash) |
                    ((word - EACH(0x20)) & ~word) | word;
    hits &= EACH(0x80);
    return hits ? __builtin_ctzll(hits) >> 3 : STRIDE;
}
#endif

static bool is_digit(char byte) {
    return byte >= '0' && byte <= '9';
}

/* A character of more than one byte; its length, 0: not UTF-8. The NUL ends it like any wrong byte. */
static int utf8_length(const unsigned char *at) {
    unsigned char first = at[0], low = 0x80, high = 0xBF;
    int more;
    if (first >= 0xC2 && first <= 0xDF) more = 1;
    else if (first >= 0xE0 && first <= 0xEF) more = 2;
    else if (first >= 0xF0 && first <= 0xF4) more = 3;
    else return 0;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
    for (int i = 1; i <= more; i++) {
        if (at[i] < low || at[i] > high) return 0;
        low = 0x80, high = 0xBF;
    }
    return more + 1;
}

static const char *escape(const char *at) {
    switch (*at) {
    case '"': case '\\': case '/': case 'b': case 'f': case 'n': case 'r': case 't':
        return at + 1;
    case 'u':
        break;
    default:
        return NULL;
    }
    for (int i = 1; i <= 4; i++) {
        char low = at[i] | 0x20;
        if (!is_digit(at[i]) && !(low >= 'a' && low <= 'f')) return NULL;
    }
    bool surrogate = (at[1] | 0x20) == 'd' && !(at[2] >= '0' && at[2] <= '7');
    return surrogate ? NULL : at + 5;
}

const char *json_string(const char *at, const char *end, bool *escaped) {
    for (;;) {
        while (end - at >= STRIDE) {
            int plain = plain_bytes(at);
            at += plain;
            if (plain < STRIDE) break;
        }
        unsigned char byte = (unsigned char)*at;
        if (byte == '"') return at + 1;
        if (byte < 0x20) return NULL;
        if (byte == '\\') {
            *escaped = true;
            at = escape(at + 1);
            if (!at) return NULL;
        } else if (byte >= 0x80) {
            int length = utf8_length((const unsigned char *)at);
            if (!length) return NULL;
            at += length;
        } else {
            at++;
        }
    }
}

const char *json_number(const char *at, struct number *parsed) {
    *parsed = (struct number){.whole = true};
    if (*at == '-') {
        parsed->negative = true;
        at++;
    }
    const char *digits = at;
    while (is_digit(*at)) at++;
    ptrdiff_t count = at - digits;
    if (count == 0 || count > 64 || (count > 1 && *digits == '0')) return NULL;
    parsed->digits = digits;
    parsed->integer_digits = (int)count;
    if (*at == '.') {
        const char *fraction = ++at;
        while (is_digit(*at)) at++;
        count = at - fraction;
        if (count == 0 || count > 64) return NULL;
        parsed->whole = false;
        parsed->fraction = fraction;
        parsed->fraction_digits = (int)count;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '+' || *at == '-') at++;
        const char *exponent = at;
        while (is_digit(*at)) at++;
        if (at == exponent || at - exponent > 3) return NULL;
        parsed->whole = false;
        parsed->has_exponent = true;
    }
    return at;
}

static const char *word(const char *at, const char *wanted) {
    while (*wanted)
        if (*at++ != *wanted++) return NULL;
    return at;
}

const char *json_value(const char *at, const char *end, int depth) {
    bool escaped;
    struct number number;
    switch (*at) {
    case '"':
        return json_string(at + 1, end, &escaped);
    case 't':
        return word(at, "true");
    case 'f':
        return word(at, "false");
    case 'n':
        return word(at, "null");
    case '{':
    case '[':
        break;
    default:
        return json_number(at, &number);
    }
    if (depth >= DEEPEST) return NULL;
    bool object = *at == '{';
    char closing = object ? '}' : ']';
    at = json_space(at + 1);
    if (*at == closing) return at + 1;
    for (;;) {
        if (object) {
            if (*at != '"' || !(at = json_string(at + 1, end, &escaped))) return NULL;
            at = json_space(at);
            if (*at != ':') return NULL;
            at = json_space(at + 1);
        }
        at = json_value(at, end, depth + 1);
        if (!at) return NULL;
        at = json_space(at);
        if (*at == closing) return at + 1;
        if (*at != ',') return NULL;
        at = json_space(at + 1);
    }
}
