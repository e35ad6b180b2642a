#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>

#include "trace.h"

static atomic_bool closed, inside;
static _Atomic uint64_t faults;
static const char *last_call = "";
static int last_code;

bool cupti_enter(void)
{
    atomic_store(&inside, true);
    if (!atomic_load(&closed) && !world_lost())
        return true;
    atomic_store(&inside, false);
    return false;
}

int cupti_leave(int code, const char *call)
{
    atomic_store(&inside, false);
    if (code != CUPTI_OK) {
        atomic_fetch_add(&faults, 1);
        last_call = call;
        last_code = code;
    }
    return code;
}

void cupti_close(int ms)
{
    atomic_store(&closed, true);
    int64_t until = mono_ns() + ms * NS_PER_MS;
    while (atomic_load(&inside) && mono_ns() < until)
        nanosleep(&(struct timespec){0, NS_PER_MS / 4}, NULL);
}

uint64_t cupti_faults(void) { return atomic_load(&faults); }

void cupti_last_fault(const struct cupti *cupti, char *out, size_t room)
{
    const char *text = NULL;
    if (cupti->get_result_string != NULL && cupti_enter()) {
        if (cupti->get_result_string(last_code, &text) != CUPTI_OK)
            text = NULL;
        atomic_store(&inside, false);
    }
    snprintf(out, room, "%s answered %d%s%s", last_call, last_code, text ? " " : "", text ? text : "");
}

void cupti_forked(void)
{
    atomic_store(&closed, false);
    atomic_store(&inside, false);
}

/* --- which libcupti this process has mapped, and whether CUDA is awake --- */

#define CONTEXTS_LOOKED_AT 16
#define CANDIDATES 4
#define TORCH "libtorch_cpu.so"

/* Tools that bring a CUPTI, or a driver interface, of their own: two in one process fight. */
static const char *const OTHERS[] = {
    "libToolsInjection", "libcuda-injection", "TreeLauncher", "libsanitizer-collection",
};

static struct {
    char cupti[CANDIDATES][512];
    size_t count;
    char torch[512], other[512];
} seen;

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void keep(char *into, size_t room, const char *path)
{
    if (into[0] == '\0')
        snprintf(into, room, "%s", path);
}

static void look_at(char *path)
{
    char *deleted = strstr(path, " (deleted)");
    if (deleted != NULL)
        *deleted = '\0';
    const char *base = base_name(path);
    if (strncmp(base, TORCH, sizeof TORCH - 1) == 0)
        keep(seen.torch, sizeof seen.torch, path);
    for (size_t i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++)
        if (strncmp(base, OTHERS[i], strlen(OTHERS[i])) == 0)
            keep(seen.other, sizeof seen.other, path);
    /* Triton carries a copy that only its own profiler uses. */
    if (strncmp(base, "libcupti.so", 11) != 0 || strstr(path, "/triton/") != NULL)
        return;
    for (size_t i = 0; i < seen.count; i++)
        if (strcmp(seen.cupti[i], path) == 0)
            return;
    if (seen.count < CANDIDATES)
        snprintf(seen.cupti[seen.count++], sizeof seen.cupti[0], "%s", path);
}

static bool read_maps(void)
{
    memset(&seen, 0, sizeof seen);
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return false;
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, maps) > 0) {
        char *path = strchr(line, '/');
        if (path == NULL)
            continue;
        path[strcspn(path, "\n")] = '\0';
        look_at(path);
    }
    free(line);
    fclose(maps);
    return true;
}

static void *mapped(const char *path) { return dlopen(path, RTLD_NOLOAD | RTLD_LAZY); }

static int is_torch(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    return strncmp(base_name(info->dlpi_name), TORCH, sizeof TORCH - 1) == 0;
}

bool torch_is_mapped(void)
{
    static bool mapped_once;
    mapped_once = mapped_once || dl_iterate_phdr(is_torch, NULL) != 0;
    return mapped_once;
}

/* The copy whose calls torch's own code would reach. */
static void *torch_cupti(struct cupti *out)
{
    void *torch = seen.torch[0] ? mapped(seen.torch) : NULL;
    void *symbol = torch ? dlsym(torch, "cuptiActivityEnable") : NULL;
    Dl_info where;
    if (symbol == NULL || dladdr(symbol, &where) == 0 || where.dli_fname == NULL)
        return NULL;
    snprintf(out->path, sizeof out->path, "%s", where.dli_fname);
    return mapped(out->path);
}

__attribute__((format(printf, 4, 5)))
static bool set_fault(struct find_fault *fault, enum trace_state state, enum status_code code, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    fault->state = state;
    fault->code = code;
    vsnprintf(fault->says, sizeof fault->says, format, values);
    va_end(values);
    return false;
}

static void *choose(struct cupti *out, struct find_fault *fault)
{
    void *library = torch_cupti(out);
    if (library != NULL)
        return library;
    if (seen.count > 1) {
        set_fault(fault, TRACE_OFF, CODE_TWO_CUPTIS,
                  "two copies of CUPTI are mapped, %s and %s, and torch uses neither for certain: kernel "
                  "tracing stays off",
                  seen.cupti[0], seen.cupti[1]);
        return NULL;
    }
    if (seen.count == 0) {
        set_fault(fault, TRACE_ABSENT, CODE_NO_CUPTI, "no libcupti is mapped in the trainer: counters only");
        return NULL;
    }
    snprintf(out->path, sizeof out->path, "%s", seen.cupti[0]);
    library = mapped(out->path);
    /* A file replaced since it was mapped answers to its soname only. */
    if (library == NULL)
        library = mapped("libcupti.so.13");
    if (library == NULL)
        library = mapped("libcupti.so.12");
    if (library == NULL)
        set_fault(fault, TRACE_ABSENT, CODE_CUPTI_UNUSABLE, "%.400s is mapped but cannot be opened: counters only",
                  out->path);
    return library;
}

/* True once some device has a live primary context: looking wakes nothing. */
static bool cuda_awake(void)
{
    void *cuda = mapped("libcuda.so.1");
    if (cuda == NULL)
        return false;
    int (*state)(int, unsigned *, int *);
    *(void **)&state = dlsym(cuda, "cuDevicePrimaryCtxGetState");
    if (state == NULL)
        return true;
    for (int device = 0; device < CONTEXTS_LOOKED_AT; device++) {
        unsigned flags = 0;
        int active = 0;
        if (state(device, &flags, &active) != 0)
            return false;
        if (active)
            return true;
    }
    return false;
}

static bool resolve(struct cupti *out, void *library)
{
    bool whole = true;
#define RESOLVE(member, name, needed, ...)                                                         \
    *(void **)&out->member = dlsym(library, name);                                                 \
    whole &= !(needed) || out->member != NULL;
    CUPTI_CALLS(RESOLVE)
    return whole;
}

/* A program without torch seldom maps CUPTI. Its own copy, once loaded, is never unloaded. */
static void *load(const char *file, struct cupti *out, struct find_fault *fault)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char *why = library == NULL ? dlerror() : NULL;
    if (library == NULL)
        set_fault(fault, TRACE_ABSENT, CODE_CUPTI_UNUSABLE, "%.300s cannot be loaded (%.300s): counters only", file,
                  why ? why : "no reason given");
    snprintf(out->path, sizeof out->path, "%s", file);
    return library;
}

/* --- how long its records are --- */

static const struct {
    uint8_t kind;
    uint16_t least;
    bool may_lack; /* a record of it ends the buffer it is in, but must not be read beyond its end */
} NEEDED[] = {
    {KIND_KERNEL, KERNEL_LEAST_BYTES, true},
    {KIND_CONCURRENT_KERNEL, KERNEL_LEAST_BYTES, false},
    {KIND_MEMCPY, COPY_LEAST_BYTES, false},
    {KIND_MEMCPY2, PEER_LEAST_BYTES, true},
    {KIND_MEMSET, COPY_LEAST_BYTES, false},
    {KIND_DRIVER, API_LEAST_BYTES, false},
    {KIND_RUNTIME, API_LEAST_BYTES, false},
};

static bool plausible(const struct strides *found)
{
    for (size_t i = 0; i < sizeof NEEDED / sizeof NEEDED[0]; i++) {
        uint32_t bytes = found->bytes[NEEDED[i].kind];
        if (bytes == 0 && NEEDED[i].may_lack)
            continue;
        if (bytes < NEEDED[i].least || bytes > 1024 || bytes % 8 != 0)
            return false;
    }
    return true;
}

/* The library itself says how far it steps over a record of each kind: a buffer in which every
 * eight bytes could begin one is read for two records. */
static bool learn(struct strides *out, int (*next)(uint8_t *, size_t, void **))
{
    static _Thread_local uint64_t page[512];
    for (uint32_t kind = 1; kind < KIND_LIMIT; kind++) {
        for (size_t i = 0; i < sizeof page / sizeof page[0]; i++)
            page[i] = kind;
        void *record = NULL;
        if (next((uint8_t *)page, sizeof page, &record) != 0 || record != (void *)page)
            continue;
        if (next((uint8_t *)page, sizeof page, &record) != 0 || record == NULL)
            continue;
        ptrdiff_t step = (uint8_t *)record - (uint8_t *)page;
        if (step > 0 && step <= 2048 && step % 8 == 0)
            out->bytes[kind] = (uint32_t)step;
    }
    return plausible(out);
}

bool cupti_find(struct cupti *out, const char *file, struct find_fault *fault)
{
    if (!cuda_awake())
        return set_fault(fault, TRACE_WAITING, CODE_GPU_UNTOUCHED, "waiting for the trainer to touch its GPU");
    if (!read_maps())
        return set_fault(fault, TRACE_ABSENT, CODE_UNREADABLE, "/proc/self/maps cannot be read: counters only");
    if (seen.other[0] != '\0')
        return set_fault(fault, TRACE_OFF, CODE_OTHER_TOOL,
                         "another NVIDIA tool is in the trainer (%.200s): kernel tracing stays off",
                         base_name(seen.other));
    memset(out, 0, sizeof *out);
    bool loads = seen.count == 0 && seen.torch[0] == '\0' && file != NULL && *file != '\0';
    void *library = loads ? load(file, out, fault) : choose(out, fault);
    if (library == NULL)
        return false;
    if (!resolve(out, library))
        return set_fault(fault, TRACE_OFF, CODE_CUPTI_UNUSABLE,
                         "%.400s lacks the activity calls: counters only", out->path);
    if (CUPTI_CALL(out, get_version, &out->version) != CUPTI_OK)
        return set_fault(fault, TRACE_OFF, CODE_CUPTI_UNUSABLE,
                         "CUPTI does not tell its version: counters only");
    if (!learn(&out->strides, out->next_record))
        return set_fault(fault, TRACE_OFF, CODE_CUPTI_UNUSABLE,
                         "CUPTI %u has records of a layout not known here: counters only", out->version);
    return true;
}

void cupti_relax_capture(void)
{
    static _Thread_local bool relaxed;
    int (*exchange)(int *);
    void *cuda = relaxed ? NULL : mapped("libcuda.so.1");
    if (cuda == NULL)
        return;
    relaxed = true;
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */
    *(void **)&exchange = dlsym(cuda, "cuThreadExchangeStreamCaptureMode");
    if (exchange != NULL)
        exchange(&mode);
}
