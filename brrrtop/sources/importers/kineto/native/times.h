/* Microseconds as traces write them → nanoseconds, as trace/times.py reads them. */
#ifndef BRRR_TIMES_H
#define BRRR_TIMES_H

#include <stdbool.h>
#include <stdint.h>

#include "json.h"

struct moment {
    int64_t ns;      /* by way of a double */
    int64_t text_ns; /* by its decimals: halves go up */
    bool needs_text; /* the double lost nanoseconds */
};

/* False: written as this does not read it. */
bool moment_of(const struct number *number, struct moment *parsed);

#endif
