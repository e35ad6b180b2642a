#include "options.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "brrrtop_agent.h"

#define OPTION(name, least, most) {#name, offsetof(struct options, name), least, most}
static const struct {
    const char *name;
    size_t at;
    uint32_t least, most;
} KNOWN[] = {
    OPTION(buffer_bytes, 8192, 4u << 20), /* no fewer than a few records, no more than stays small */
    OPTION(max_buffers, 1, 64),
    OPTION(pool_limit, 2, 250),
    OPTION(outbox_bytes, 1u << 16, 64u << 20),
    OPTION(idle_retract_ms, 0, UINT32_MAX),
    OPTION(drain_ms, 0, 10000),
    OPTION(flush_ms, 20, 10000),
    OPTION(require_context, 0, 1),
    OPTION(demangle, 0, 1),
};

static int set(struct options *out, const char *name, size_t bytes, const char *value)
{
    char *rest;
    if (bytes == 5 && memcmp(name, "cupti", bytes) == 0) {
        size_t length = strcspn(value, ";");
        if (length >= sizeof out->cupti || *value != '/')
            return agent_fail(BRRR_E_ARGUMENT, "option cupti must be an absolute path of less than %zu bytes",
                              sizeof out->cupti);
        memcpy(out->cupti, value, length);
        out->cupti[length] = '\0';
        return BRRR_OK;
    }
    unsigned long long number = strtoull(value, &rest, 10);
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        if (strlen(KNOWN[i].name) != bytes || memcmp(KNOWN[i].name, name, bytes) != 0)
            continue;
        if (rest == value || (*rest != ';' && *rest != '\0') || *value == '-' ||
            number < KNOWN[i].least || number > KNOWN[i].most)
            return agent_fail(BRRR_E_ARGUMENT, "option %s must be a number from %u to %u", KNOWN[i].name,
                              KNOWN[i].least, KNOWN[i].most);
        uint32_t small = (uint32_t)number;
        memcpy((char *)out + KNOWN[i].at, &small, sizeof small);
        return BRRR_OK;
    }
    return agent_fail(BRRR_E_ARGUMENT, "unknown option %.*s", (int)(bytes < 60 ? bytes : 60), name);
}

int options_read(const char *text, struct options *out)
{
    *out = (struct options){.buffer_bytes = 1u << 20, .max_buffers = 14, .pool_limit = 8,
                            .outbox_bytes = 8u << 20, .idle_retract_ms = 600000, .drain_ms = 500,
                            .flush_ms = 150, .require_context = 1, .demangle = 1};
    while (text != NULL && *text != '\0') {
        size_t bytes = strcspn(text, "=;");
        if (text[bytes] == '=') {
            int code = set(out, text, bytes, text + bytes + 1);
            if (code != BRRR_OK)
                return code;
        } else if (bytes != 0) {
            return agent_fail(BRRR_E_ARGUMENT, "option %.*s has no value", (int)(bytes < 60 ? bytes : 60),
                              text);
        }
        text += strcspn(text, ";");
        text += *text == ';';
    }
    return BRRR_OK;
}
