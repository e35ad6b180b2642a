/* The calls Python makes while the agent runs, and the options it gives at the start. */
#include <dlfcn.h>

#include "trace.h"

#define ANSWER_MS 2000
/* Young collections come hundreds of times a second and take microseconds: not worth a mark. */
#define COLLECTION_WORTH_NS 200000

/* To 256 ns: what jitters below that is a quarter of a recording. */
#define MARK_GRAIN (~INT64_C(255))

static _Atomic uint64_t step_count;
static char last_error[512] = "no error yet";
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;

int agent_fail(int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&error_lock);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    pthread_mutex_unlock(&error_lock);
    va_end(arguments);
    return code;
}

struct options options;

#define OPTION(name, usual, least, most) {#name, &options.name, usual, least, most}
static const struct {
    const char *name;
    uint32_t *value, usual, least, most;
} KNOWN[] = {
    OPTION(buffer_bytes, 1u << 20, 8192, 4u << 20), /* no fewer than a few records, no more than stays small */
    OPTION(max_buffers, 14, 1, 64),
    OPTION(outbox_bytes, 8u << 20, 1u << 16, 64u << 20),
    OPTION(idle_retract_ms, 600000, 0, UINT32_MAX),
    OPTION(drain_ms, 500, 0, 10000),
    OPTION(flush_ms, 150, 20, 10000),
};

static int set_option(const char *name, size_t bytes, const char *value)
{
    char *rest;
    if (bytes == 5 && memcmp(name, "cupti", bytes) == 0) {
        size_t length = strcspn(value, ";");
        if (length >= sizeof options.cupti || *value != '/')
            return agent_fail(BRRR_E_ARGUMENT, "option cupti must be an absolute path of less than %zu bytes",
                              sizeof options.cupti);
        memcpy(options.cupti, value, length);
        options.cupti[length] = '\0';
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
        *KNOWN[i].value = (uint32_t)number;
        return BRRR_OK;
    }
    return agent_fail(BRRR_E_ARGUMENT, "unknown option %.*s", (int)(bytes < 60 ? bytes : 60), name);
}

int options_read(const char *text)
{
    memset(&options, 0, sizeof options);
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++)
        *KNOWN[i].value = KNOWN[i].usual;
    while (text != NULL && *text != '\0') {
        size_t bytes = strcspn(text, "=;");
        if (text[bytes] == '=') {
            int code = set_option(text, bytes, text + bytes + 1);
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

static int ask(int what, const char *who)
{
    /* A caller that resumes goes on at once, perhaps into a capture: no place to switch on at. */
    bool met = what != ASK_RESUME && safepoint_caller();
    bool answered = requests_ask(what, who, ANSWER_MS);
    if (met)
        safepoint_caller_left();
    return answered ? BRRR_OK
                    : agent_fail(BRRR_E_TIMEOUT, "the agent's thread is still inside CUPTI");
}

int brrr_stop(void) { return ask(ASK_STOP, NULL); }

int brrr_yield(const char *who) { return ask(ASK_YIELD, who != NULL ? who : "another profiler"); }

int brrr_resume(void) { return ask(ASK_RESUME, NULL); }

void brrr_graphs(int may_exist)
{
    finalize_graphs(may_exist != 0);
    if (may_exist && server_clients() != 0) {
        /* What is on goes off before the capture begins. */
        brrr_yield("a CUDA graph capture");
        brrr_resume();
    }
    agent_wake();
}

const char *brrr_last_error(void)
{
    static _Thread_local char copy[sizeof last_error];
    pthread_mutex_lock(&error_lock);
    memcpy(copy, last_error, sizeof copy);
    pthread_mutex_unlock(&error_lock);
    return copy;
}

void brrr_mark(uint16_t mark_class, int64_t start_ns, int64_t end_ns, int64_t value, uint32_t name_id,
               uint32_t tid)
{
    if (server_clients() == 0)
        return;
    struct wire_mark mark = {start_ns & MARK_GRAIN, end_ns & MARK_GRAIN, value, tid, name_id, mark_class, 0, 0};
    marks_put(&mark);
}

void brrr_step(int64_t t_ns, uint32_t tid)
{
    uint64_t count = atomic_fetch_add_explicit(&step_count, 1, memory_order_relaxed) + 1;
    brrr_mark(MARK_STEP, t_ns, t_ns, (int64_t)count, 0, tid);
    trace_step(count);
}

/* Of the interpreter's; the agent is linked to none. */
static int (*differs)(void *, const char *);
static void *(*item)(void *, const char *);
static long (*number)(void *);
static void (*hold)(void *);

static void *collection(void *none, void *const *given, long count)
{
    static _Atomic int64_t began_ns; /* one at a time, says the interpreter */
    bool begins = count != 2 || differs(given[0], "start") == 0;
    int64_t now_ns = real_ns(), start_ns = atomic_exchange(&began_ns, begins ? now_ns : 0);
    hold(none);
    if (begins || start_ns == 0 || now_ns - start_ns < COLLECTION_WORTH_NS || server_clients() == 0)
        return none;
    void *value = item(given[1], "generation");
    long generation = value != NULL ? number(value) : -1;
    char name[32];
    snprintf(name, sizeof name, "gc generation %ld", generation);
    brrr_mark(MARK_GC, start_ns, now_ns, generation, brrr_name(name), (uint32_t)pthread_self());
    return none;
}

const void *brrr_collection(void)
{
    static const struct {
        const char *name;
        void *(*call)(void *, void *const *, long);
        int flags;
        const char *says;
    } method = {"collection", collection, 0x80 /* METH_FASTCALL */, NULL};
    *(void **)&differs = dlsym(RTLD_DEFAULT, "PyUnicode_CompareWithASCIIString");
    *(void **)&item = dlsym(RTLD_DEFAULT, "PyDict_GetItemString");
    *(void **)&number = dlsym(RTLD_DEFAULT, "PyLong_AsLong");
    *(void **)&hold = dlsym(RTLD_DEFAULT, "Py_IncRef");
    return &method;
}

uint32_t brrr_name(const char *utf8)
{
    return utf8 == NULL ? 0 : names_add(utf8, strlen(utf8));
}

int brrr_frame(uint16_t kind, const void *payload, uint32_t bytes, uint32_t records)
{
    bool kept = kind == WIRE_HELLO || kind == WIRE_DEVICE;
    if (payload == NULL || !agent_listens() || (server_clients() == 0 && !kept))
        return agent_fail(BRRR_E_BUSY, "nobody listens");
    if (!inbox_put(kind, payload, bytes, records))
        return agent_fail(BRRR_E_MEMORY, "the queue to the agent's thread is full");
    agent_wake();
    return BRRR_OK;
}

void abi_forked(void)
{
    error_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_store(&step_count, 0);
}

/* Found in the file by whoever asks whether it is older than its sources; exported, or a linker drops it. */
__attribute__((visibility("default"))) const char brrr_agent_fingerprint[] = "brrrtop-sources:" BRRR_FINGERPRINT;
