#include "report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "brrrtop_agent.h"
#include "clock.h"
#include "frame_builder.h"
#include "marks.h"
#include "names.h"
#include "pool.h"
#include "server.h"
#include "text.h"
#include "trace.h"
#include "records.h"
#include "wire.h"

#define DEVICES 16
#define STATUS_ROOM 4096

static char *hello;
static char *devices[DEVICES];
static uint32_t device_count;
/* Whether each kernel has its launch, as told to the monitors. */
static const char *const LAUNCHES[] = {"null", "false", "true"};

#define CODE_NAME(code, text) [code] = text,
static const char *const CODE_NAMES[] = {STATUS_CODES(CODE_NAME)};

static uint64_t told_lost;
static int64_t told_ns;

void report_hello(char *json)
{
    free(hello);
    hello = json;
}

void report_keep_device(const char *json, size_t bytes)
{
    for (uint32_t i = 0; i < device_count; i++)
        if (strlen(devices[i]) == bytes && memcmp(devices[i], json, bytes) == 0)
            return;
    char *copy = device_count < DEVICES ? strndup(json, bytes) : NULL;
    if (copy != NULL)
        devices[device_count++] = copy;
}

static const char *tier(void)
{
    switch (trace_state()) {
    case TRACE_READY:
    case TRACE_TRACING:
    case TRACE_DRAINING:
        return trace_continuous() ? "continuous" : "bursts";
    default:
        return "nvml";
    }
}

static void add_cupti(struct text *text)
{
    const struct cupti *cupti = trace_cupti();
    if (cupti == NULL) {
        text_add(text, "null");
        return;
    }
    text_add(text, "{\"version\":%" PRIu32 ",\"path\":", cupti->version);
    text_quote(text, cupti->path);
    text_add(text, ",\"strides\":\"%s\",\"kernel_bytes\":%" PRIu32 ",\"calls\":%s,\"faults\":%" PRIu64,
             stride_source_name(cupti->strides.source), cupti->strides.bytes[KIND_CONCURRENT_KERNEL],
             trace_has_calls() ? "true" : "false", cupti_faults());
    if (cupti_faults() != 0) {
        char fault[160];
        cupti_last_fault(cupti, fault, sizeof fault);
        text_add(text, ",\"last_fault\":");
        text_quote(text, fault);
    }
    text_add(text, "}");
}

/* The hello as it was given, with what only the agent knows before its closing brace. */
static struct text hello_text(void)
{
    const char *given = hello != NULL ? hello : "{}";
    size_t body = strlen(given), room = body + STATUS_ROOM;
    struct text text = {malloc(room), room, 0, false};
    if (text.at == NULL)
        return text;
    while (body > 0 && strchr(" \t\r\n", given[body - 1]) != NULL)
        body--;
    body -= body > 0; /* the brace */
    size_t start = 0;
    while (start < body && given[start] != '{')
        start++;
    bool empty = strspn(given + start + 1, " \t\r\n") + start + 1 >= body;
    text_add(&text, "%.*s%s", (int)body, given, empty ? "" : ",");
    if (strstr(given, "\"wire\"") == NULL)
        text_add(&text, "\"wire\":%d,", WIRE_VERSION);
    text_add(&text, "\"native\":%d,\"cupti\":", BRRR_ABI);
    add_cupti(&text);
    text_add(&text, "}");
    return text;
}

void report_hello_again(void)
{
    struct text text = hello_text();
    if (text.at != NULL && !text.cut)
        server_send(WIRE_HELLO, text.at, text.used, 0, true);
    free(text.at);
}

static struct text status_text(char *room, size_t bytes, const struct burst *burst)
{
    struct text text = {room, bytes, 0, false};
    text_add(&text, "{\"tier\":\"%s\",\"state\":\"%s\",\"code\":\"%s\",\"by\":\"agent\",\"says\":", tier(),
             trace_state_name(trace_state()), CODE_NAMES[trace_code()]);
    text_quote(&text, trace_says());
    text_add(&text, ",\"bursts\":%" PRIu64, trace_bursts());
    if (trace_must_wait())
        text_add(&text, ",\"all_threads\":true");
    if (burst != NULL) {
        text_add(&text,
                 ",\"traced\":{\"kernels\":%" PRIu64 ",\"steps\":%" PRIu64 ",\"whole\":%s,\"launches\":%s",
                 burst->kernels, burst->steps, burst->whole ? "true" : "false",
                 LAUNCHES[burst->launches]);
        if (burst->all_threads)
            text_add(&text, ",\"all_threads\":true");
        text_add(&text, ",\"held_us\":{\"out\":%" PRId64 ",\"on\":%" PRId64 ",\"off\":%" PRId64 "}}",
                 burst->holds.out_ns / 1000, burst->holds.on_ns / 1000, burst->holds.off_ns / 1000);
    }
    text_add(&text, ",\"cupti\":");
    add_cupti(&text);
    text_add(&text, "}");
    return text;
}

void report_status(void)
{
    char room[STATUS_ROOM];
    struct text text = status_text(room, sizeof room, NULL);
    if (!text.cut)
        server_send(WIRE_STATUS, text.at, text.used, 0, true);
}

void report_status_to(int slot)
{
    char room[STATUS_ROOM];
    struct text text = status_text(room, sizeof room, NULL);
    if (!text.cut)
        server_send_to(slot, WIRE_STATUS, text.at, text.used);
}

void report_traced(const struct burst *burst)
{
    char room[STATUS_ROOM];
    struct text text = status_text(room, sizeof room, burst);
    if (!text.cut)
        server_send(WIRE_STATUS, text.at, text.used, 0, true);
}

void report_welcome(int slot)
{
    struct text text = hello_text();
    if (text.at != NULL && !text.cut)
        server_send_to(slot, WIRE_HELLO, text.at, text.used);
    free(text.at);
    for (uint32_t i = 0; i < device_count; i++)
        server_send_to(slot, WIRE_DEVICE, devices[i], strlen(devices[i]));
    report_status_to(slot);
    told_lost = 0; /* the totals are told again, if there are any */
    told_ns = 0;
}

struct losses {
    uint64_t cupti, zero, clock, unknown, pool, foreign, outbox, marks, names;
};

static struct losses losses_now(void)
{
    struct pool_counts pool;
    pool_count(&pool);
    return (struct losses){trace_dropped(),      records_seen.zero_timestamps, records_seen.wrong_clock,
                           records_seen.unknown_kinds, pool.refused,           pool.foreign,
                           server_lost() + frame_builder_lost(), marks_lost(),   names_refused()};
}

uint64_t report_lost(void)
{
    struct losses l = losses_now();
    return l.cupti + l.zero + l.clock + l.unknown + l.pool + l.foreign + l.outbox + l.marks + l.names;
}

void report_losses(int64_t now_ns)
{
    uint64_t lost = report_lost();
    if (lost == told_lost || now_ns - told_ns < NS_PER_S || server_clients() == 0)
        return;
    told_lost = lost;
    told_ns = now_ns;
    struct losses l = losses_now();
    char room[STATUS_ROOM];
    struct text text = {room, sizeof room, 0, false};
    text_add(&text,
             "{\"cupti_dropped\":%" PRIu64 ",\"zero_timestamps\":%" PRIu64 ",\"wrong_clock\":%" PRIu64
             ",\"unknown_records\":%" PRIu64 ",\"pool\":%" PRIu64 ",\"foreign_buffers\":%" PRIu64
             ",\"outbox\":%" PRIu64 ",\"marks\":%" PRIu64 ",\"names\":%" PRIu64 "}",
             l.cupti, l.zero, l.clock, l.unknown, l.pool, l.foreign, l.outbox, l.marks, l.names);
    server_send(WIRE_LOSS, text.at, text.used, 0, true);
}

void report_forked(void)
{
    hello = NULL;
    memset(devices, 0, sizeof devices);
    device_count = 0;
}
