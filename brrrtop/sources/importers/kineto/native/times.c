#include "times.h"

#include <stddef.h>

#define EXACT_BELOW_US (1LL << 43)
#define LARGEST_US 9000000000000000LL

static int64_t digits_value(const char *digits, int count) {
    int64_t value = 0;
    for (int i = 0; i < count; i++) value = value * 10 + (digits[i] - '0');
    return value;
}

/* Halves go to the even neighbour, as numpy's rint has it; `value` is not negative and small. */
static int64_t rounded(double value) {
    int64_t whole = (int64_t)value;
    double rest = value - (double)whole;
    return whole + (rest > 0.5 || (rest == 0.5 && (whole & 1)));
}

bool moment_of(const struct number *number, struct moment *parsed) {
    if (number->has_exponent || number->integer_digits > 16) return false;
    int64_t us = digits_value(number->digits, number->integer_digits);
    if (us >= LARGEST_US) return false;
    int decimals = number->fraction_digits;
    while (decimals && number->fraction[decimals - 1] == '0') decimals--;
    if (decimals == 0) {
        parsed->ns = parsed->text_ns = number->negative ? -us * 1000 : us * 1000;
        parsed->needs_text = false;
        return true;
    }
    static const int64_t SCALES[] = {1000, 100, 10, 1};
    int near = decimals < 3 ? decimals : 3;
    int64_t exact = us * 1000 + digits_value(number->fraction, near) * SCALES[near];
    parsed->needs_text = us >= EXACT_BELOW_US;
    if (number->negative) return false;
    if (decimals <= 3) {
        parsed->ns = parsed->text_ns = exact;
        return true;
    }
    parsed->text_ns = exact + (number->fraction[3] >= '5');
    if (parsed->needs_text) {
        parsed->ns = parsed->text_ns;
        return number->integer_digits + 1 + number->fraction_digits <= 22;
    }
    /* One division of two exact doubles gives the nearest double, as a full parser would. */
    double scale = 1.0;
    int64_t mantissa = us;
    for (int i = 0; i < decimals; i++) {
        if (mantissa >= (1LL << 53) / 10 - 1 || i >= 22) return false;
        mantissa = mantissa * 10 + (number->fraction[i] - '0');
        scale *= 10.0;
    }
    double value = (double)mantissa / scale;
    parsed->ns = us * 1000 + rounded((value - (double)us) * 1000.0);
    return true;
}
