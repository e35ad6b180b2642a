/* A stand-in libnvidia-ml.so.1: the symbols brrrtop asks for, answering after a script in the
 * environment, read anew at each call:
 *
 *   FAKE_NVML_DEVICES       number of GPUs (1)
 *   FAKE_NVML_MIG           1: GPU 0 is cut into MIG devices
 *   FAKE_NVML_FAIL          "nvmlDeviceGetTemperature=3,nvmlGpmSampleGet=4": return codes; "*=15": every call
 *   FAKE_NVML_SLOW_US       "nvmlDeviceGetTemperature=20000": how long a call takes
 *   FAKE_NVML_FIELD_FAIL    "186=3,138=3": nvmlReturn of single field values
 *   FAKE_NVML_FIELD_SLOW_US "82=20000": latency a field value reports
 *   FAKE_NVML_GPM           "2=96,5=93.5,10=nan": metric values (others: not supported); unset: no GPM
 *   FAKE_NVML_PIDS          "100,200": compute processes
 *   FAKE_NVML_UTIL          GPU-Util in percent (37)
 *   FAKE_NVML_XID           an XID event that happens once
 *
 * fake_nvml_calls("name") says how often a call was made; fake_nvml_live_samples() how many GPM
 * samples are not freed. Layouts: nvml.h of CUDA 13.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef int Ret;
enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, TIMEOUT = 10 };

static struct { char name[64]; long count; } calls[128];
static long live_samples;
static int xid_told;

typedef struct Device { int index; } Device;
static Device boards[16];

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The value of `key` in "key=value,…" of the environment variable, or `otherwise`. */
static double scripted(const char *variable, const char *key, double otherwise) {
    const char *at = getenv(variable);
    size_t size = strlen(key);
    while (at && *at) {
        if (!strncmp(at, key, size) && at[size] == '=') return strtod(at + size + 1, NULL);
        at = strchr(at, ',');
        if (at) at++;
    }
    return otherwise;
}

static double scripted_id(const char *variable, unsigned id, double otherwise) {
    char key[16];
    snprintf(key, sizeof key, "%u", id);
    return scripted(variable, key, otherwise);
}

static int number(const char *variable, int otherwise) {
    const char *value = getenv(variable);
    return value ? atoi(value) : otherwise;
}

static Ret entered(const char *name) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (!calls[i].name[0]) snprintf(calls[i].name, sizeof calls[i].name, "%s", name);
        if (!strcmp(calls[i].name, name)) { calls[i].count++; break; }
    }
    int slow = (int)scripted("FAKE_NVML_SLOW_US", name, 0);
    if (slow) usleep(slow);
    int all = (int)scripted("FAKE_NVML_FAIL", "*", 0);
    if (all && strcmp(name, "nvmlInitWithFlags") && strcmp(name, "nvmlShutdown")) return all;
    return (Ret)scripted("FAKE_NVML_FAIL", name, 0);
}
#define ENTER() do { Ret told = entered(__func__); if (told) return told; } while (0)

long fake_nvml_calls(const char *name) {
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (!strcmp(calls[i].name, name)) return calls[i].count;
    return 0;
}
long fake_nvml_live_samples(void) { return live_samples; }

Ret nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(); return OK; }
Ret nvmlInit_v2(void) { ENTER(); return OK; }
Ret nvmlShutdown(void) { ENTER(); return OK; }
const char *nvmlErrorString(Ret r) {
    switch (r) { case 3: return "Not Supported"; case 4: return "Insufficient Permissions";
                 case 15: return "GPU is lost"; default: return "Error"; }
}
Ret nvmlSystemGetDriverVersion(char *out, unsigned size) { ENTER(); snprintf(out, size, "580.0"); return OK; }

Ret nvmlDeviceGetCount_v2(unsigned *count) { ENTER(); *count = number("FAKE_NVML_DEVICES", 1); return OK; }
Ret nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    ENTER();
    if ((int)index >= number("FAKE_NVML_DEVICES", 1)) return INVALID_ARGUMENT;
    boards[index].index = index;
    *out = &boards[index];
    return OK;
}
Ret nvmlDeviceGetUUID(Device *d, char *out, unsigned size) {
    ENTER();
    snprintf(out, size, "GPU-abcdef0%d-1111-2222-3333-444444444444", d->index);
    return OK;
}
Ret nvmlDeviceGetName(Device *d, char *out, unsigned size) {
    ENTER();
    (void)d; snprintf(out, size, "NVIDIA Fake");
    return OK;
}
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
Ret nvmlDeviceGetPciInfo_v3(Device *d, Pci *out) {
    ENTER();
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:0%d:00.0", d->index);
    return OK;
}
Ret nvmlDeviceGetMigMode(Device *d, unsigned *current, unsigned *pending) {
    ENTER();
    *current = *pending = d->index == 0 && number("FAKE_NVML_MIG", 0) > 0;
    return OK;
}
Ret nvmlDeviceGetCudaComputeCapability(Device *d, int *major, int *minor) { ENTER(); (void)d; *major = 9; *minor = 0; return OK; }
Ret nvmlDeviceGetNumGpuCores(Device *d, unsigned *out) { ENTER(); (void)d; *out = 16896; return OK; }

typedef struct { unsigned gpu, memory; } Utilization;
Ret nvmlDeviceGetUtilizationRates(Device *d, Utilization *out) {
    ENTER(); (void)d;
    out->gpu = number("FAKE_NVML_UTIL", 37); out->memory = 5;
    return OK;
}
typedef struct { unsigned long long total, free, used; } Memory;
Ret nvmlDeviceGetMemoryInfo(Device *d, Memory *out) {
    ENTER(); (void)d;
    out->total = 141ULL << 30;
    out->used = 12ULL << 30; out->free = out->total - out->used;
    return OK;
}
Ret nvmlDeviceGetPowerUsage(Device *d, unsigned *out) { ENTER(); (void)d; *out = 400000; return OK; }
Ret nvmlDeviceGetEnforcedPowerLimit(Device *d, unsigned *out) { ENTER(); (void)d; *out = 690000; return OK; }
Ret nvmlDeviceGetTemperature(Device *d, unsigned sensor, unsigned *out) { ENTER(); (void)d; (void)sensor; *out = 55; return OK; }
Ret nvmlDeviceGetClockInfo(Device *d, unsigned clock, unsigned *out) { ENTER(); (void)d; *out = clock == 1 ? 1980 : 3201; return OK; }
Ret nvmlDeviceGetMaxClockInfo(Device *d, unsigned clock, unsigned *out) { ENTER(); (void)d; *out = clock == 1 ? 1980 : 3201; return OK; }
Ret nvmlDeviceGetCurrentClocksEventReasons(Device *d, unsigned long long *out) { ENTER(); (void)d; *out = 4; return OK; }
Ret nvmlDeviceGetCurrentClocksThrottleReasons(Device *d, unsigned long long *out) { ENTER(); (void)d; *out = 0x40; return OK; }

typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } Process;
Ret nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *count, Process *out) {
    ENTER(); (void)d;
    unsigned found = 0;
    const char *at = getenv("FAKE_NVML_PIDS");
    while (at && *at) {
        if (out && found < *count) { memset(&out[found], 0, sizeof *out); out[found].pid = atoi(at); }
        found++;
        at = strchr(at, ',');
        if (at) at++;
    }
    int room = !out || *count < found;
    *count = found;
    return found && room ? INSUFFICIENT_SIZE : OK;
}

typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; } Value;
typedef struct {
    uint32_t field, scope; int64_t timestamp, latency_us; unsigned type; Ret ret; Value value;
} FieldValue;
Ret nvmlDeviceGetFieldValues(Device *d, int count, FieldValue *v) {
    ENTER(); (void)d;
    for (int i = 0; i < count; i++) {
        v[i].ret = (Ret)scripted_id("FAKE_NVML_FIELD_FAIL", v[i].field, 0);
        v[i].latency_us = (int64_t)scripted_id("FAKE_NVML_FIELD_SLOW_US", v[i].field, 1);
        v[i].type = 1;
        switch (v[i].field) {
        case 186: v[i].value.u = 512000; break;
        case 190: v[i].value.u = 700000; break;
        case 82: v[i].value.u = 71; break;
        case 4: v[i].value.u = 0; break;
        case 197: case 198: v[i].type = 3; v[i].value.ull = (unsigned long long)now_ns(); break;
        case 138: case 139:
            v[i].type = 3; v[i].value.ull = (unsigned long long)(now_ns() / 1024);
            if (v[i].scope != 0xFFFFFFFFu) v[i].ret = INVALID_ARGUMENT;
            break;
        default: v[i].ret = NOT_SUPPORTED;
        }
    }
    return OK;
}

typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { long long at_ns; } GpmSample;
typedef struct { unsigned id; Ret ret; double value; const char *info[3]; } GpmMetric;
typedef struct { unsigned version, count; GpmSample *first, *second; GpmMetric metrics[]; } GpmGet;
Ret nvmlGpmQueryDeviceSupport(Device *d, GpmSupport *out) { ENTER(); (void)d; out->supported = getenv("FAKE_NVML_GPM") != NULL; return OK; }
Ret nvmlGpmSampleAlloc(GpmSample **out) { ENTER(); *out = calloc(1, sizeof **out); live_samples++; return OK; }
Ret nvmlGpmSampleFree(GpmSample *s) { ENTER(); free(s); live_samples--; return OK; }
Ret nvmlGpmSampleGet(Device *d, GpmSample *s) {
    ENTER(); (void)d;
    s->at_ns = now_ns();
    return OK;
}
Ret nvmlGpmMetricsGet(GpmGet *get) {
    ENTER();
    if (get->version != 1 || !get->first || !get->second) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < get->count; i++) {
        double value = scripted_id("FAKE_NVML_GPM", get->metrics[i].id, -1);
        get->metrics[i].ret = value == -1 ? NOT_SUPPORTED : OK;
        get->metrics[i].value = get->second->at_ns - get->first->at_ns < 100000000LL ? NAN : value;
    }
    return OK;
}

typedef struct { Device *device; unsigned long long type, data; unsigned gi, ci; } EventData;
Ret nvmlEventSetCreate(void **out) { ENTER(); *out = malloc(1); return OK; }
Ret nvmlEventSetFree(void *set) { ENTER(); free(set); return OK; }
Ret nvmlDeviceRegisterEvents(Device *d, unsigned long long types, void *set) { ENTER(); (void)d; (void)types; (void)set; return OK; }
Ret nvmlEventSetWait_v2(void *set, EventData *out, unsigned timeout_ms) {
    ENTER(); (void)set; (void)timeout_ms;
    if (!getenv("FAKE_NVML_XID") || xid_told) return TIMEOUT;
    xid_told = 1;
    memset(out, 0, sizeof *out);
    out->type = 8; out->data = atoi(getenv("FAKE_NVML_XID"));
    return OK;
}
