#include "trace.h"

#define KEPT 17 /* the hello, and devices */
#define STATUS_ROOM 4096

static char *kept[KEPT]; /* JSON, the hello first */
/* Whether each kernel has its launch, as told to the monitors. */
static const char *const LAUNCHES[] = {"null", "false", "true"};

#define NAME(code, text) [code] = text,
static const char *const CODES[] = {STATUS_CODES(NAME)}, *const STATES[] = {TRACE_STATES(NAME)};

static uint64_t told_lost;
static int64_t told_ns;

bool report_keep(uint16_t kind, const char *json)
{
    char **place = kept;
    if (kind == WIRE_DEVICE)
        do {
            if (++place == kept + KEPT)
                return false;
        } while (*place != NULL && strcmp(*place, json) != 0);
    char *copy = strdup(json);
    if (copy == NULL)
        return false;
    free(*place);
    *place = copy;
    return true;
}

static const char *tier(void)
{
    if (tracing.state != TRACE_READY && tracing.state != TRACE_TRACING && tracing.state != TRACE_DRAINING)
        return "nvml";
    return tracing.continuous ? "continuous" : "bursts";
}

static void add_cupti(struct text *text)
{
    const struct cupti *cupti = &tracing.cupti;
    if (!tracing.found) {
        text_add(text, "null");
        return;
    }
    text_add(text, "{\"version\":%" PRIu32 ",\"path\":", cupti->version);
    text_quote(text, cupti->path);
    text_add(text, ",\"calls\":%s,\"faults\":%" PRIu64, tracing.has_calls ? "true" : "false", cupti_faults());
    if (cupti_faults() != 0) {
        char fault[160];
        cupti_last_fault(cupti, fault, sizeof fault);
        text_add(text, ",\"last_fault\":");
        text_quote(text, fault);
    }
    text_add(text, "}");
}

static void tell(int slot, enum wire_kind kind, const struct text *text)
{
    if (!text->cut)
        server_send(slot, kind, text->at, text->used, 0, true);
}

void report_status(int slot, const struct burst *burst)
{
    char room[STATUS_ROOM];
    struct text text = {room, sizeof room, 0, false};
    text_add(&text, "{\"tier\":\"%s\",\"state\":\"%s\",\"code\":\"%s\",\"by\":\"agent\",\"says\":", tier(),
             STATES[tracing.state], CODES[tracing.code]);
    text_quote(&text, tracing.says);
    text_add(&text, ",\"bursts\":%" PRIu64, tracing.bursts);
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
                 burst->out_ns / 1000, burst->on_ns / 1000, burst->off_ns / 1000);
    }
    text_add(&text, ",\"cupti\":");
    add_cupti(&text);
    text_add(&text, "}");
    tell(slot, WIRE_STATUS, &text);
}

void report_welcome(int slot)
{
    for (int i = 0; i < KEPT && kept[i] != NULL; i++)
        server_send(slot, i == 0 ? WIRE_HELLO : WIRE_DEVICE, kept[i], strlen(kept[i]), 0, true);
    report_status(slot, NULL);
    told_lost = 0; /* the totals are told again, if there are any */
    told_ns = 0;
}

/* Where records were lost, and how many since the start. */
static struct loss {
    const char *place;
    uint64_t count;
} losses[9];

uint64_t report_lost(void)
{
    const struct loss now[] = {
        {"cupti_dropped", tracing.dropped},
        {"zero_timestamps", records_seen.zero_timestamps},
        {"wrong_clock", records_seen.wrong_clock},
        {"unknown_records", records_seen.unknown_kinds},
        {"pool", atomic_load(&pool_counts.refused)},
        {"foreign_buffers", atomic_load(&pool_counts.foreign)},
        {"outbox", outbox_lost},
        {"marks", marks_lost()},
        {"names", names_count().refused},
    };
    _Static_assert(sizeof now == sizeof losses, "losses");
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof now / sizeof now[0]; i++)
        sum += (losses[i] = now[i]).count;
    return sum;
}

void report_losses(int64_t now_ns)
{
    uint64_t lost = report_lost();
    if (lost == told_lost || now_ns - told_ns < NS_PER_S || server_clients() == 0)
        return;
    told_lost = lost;
    told_ns = now_ns;
    char room[STATUS_ROOM];
    struct text text = {room, sizeof room, 0, false};
    for (size_t i = 0; i < sizeof losses / sizeof losses[0]; i++)
        text_add(&text, "%c\"%s\":%" PRIu64, i ? ',' : '{', losses[i].place, losses[i].count);
    text_add(&text, "}");
    tell(EVERYBODY, WIRE_LOSS, &text);
}

void report_forked(void)
{
    memset(kept, 0, sizeof kept);
}
