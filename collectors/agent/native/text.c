#include "base.h"

void text_add(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t left = text->room - text->used;
    int needed = vsnprintf(text->at + text->used, left, format, arguments);
    va_end(arguments);
    if (needed < 0 || (size_t)needed >= left)
        text->cut = true;
    else
        text->used += (size_t)needed;
    text->at[text->used] = '\0';
}

void text_quote(struct text *text, const char *value)
{
    text_add(text, "\"");
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            text_add(text, "\\%c", *c);
        else if (*c < 0x20)
            text_add(text, "\\u%04x", *c);
        else
            text_add(text, "%c", *c < 0x7f ? *c : '?');
    }
    text_add(text, "\"");
}
