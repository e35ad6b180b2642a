/* JSON text in a fixed room. What does not fit is cut and `cut` says so. */
#ifndef BRRR_TEXT_H
#define BRRR_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *at;
    size_t room, used;
    bool cut;
};

void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string, quotes included. Bytes that are no text become `?`. */
void text_quote(struct text *text, const char *value);

#endif
