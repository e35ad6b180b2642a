/* The grammar of JSON over text that ends in a NUL, as strict as RFC 8259 or stricter.
 *
 * Each function takes the place where a value starts and returns the place behind it, or NULL: not
 * JSON, or JSON of a kind that the slow way has to read (lone surrogates, values nested deeper than
 * DEEPEST). The NUL stops every loop, since no value may hold one; only loads of several bytes
 * look at `end`.
 */
#ifndef BRRR_JSON_H
#define BRRR_JSON_H

#include <stdbool.h>
#include <stdint.h>

#define DEEPEST 32

struct number {
    bool negative;
    bool whole; /* without fraction and exponent */
    bool has_exponent;
    const char *digits;
    int integer_digits;
    const char *fraction; /* behind the point */
    int fraction_digits;  /* as written */
};

static inline const char *json_space(const char *at) {
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') at++;
    return at;
}

/* `at` is behind the opening quote; the result is behind the closing one. */
const char *json_string(const char *at, const char *end, bool *escaped);
const char *json_number(const char *at, struct number *parsed);
/* Any value; `depth` counts what it is inside of. */
const char *json_value(const char *at, const char *end, int depth);

#endif
