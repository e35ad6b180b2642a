/* The libcupti that the trainer already has, its calls by name, and a fence around each.
 *
 * No lock of ours is ever held across a call: CUPTI calls our buffer callbacks from inside its
 * own, on any thread. Agent's thread only.
 */
#ifndef BRRR_CUPTI_H
#define BRRR_CUPTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layouts.h"
#include "wire.h"

enum cupti_result {
    CUPTI_OK = 0,
    CUPTI_NOT_COMPATIBLE = 14,
    CUPTI_HARDWARE_BUSY = 26,
    CUPTI_NOT_SUPPORTED = 27,
    CUPTI_INSUFFICIENT_PRIVILEGES = 35,
    CUPTI_MULTIPLE_SUBSCRIBERS = 39,
    CUPTI_GONE = -1, /* ours: the process exits, or the call does not exist */
};

enum cupti_attribute {
    ATTR_DEVICE_BUFFER_SIZE = 0,
    ATTR_DEVICE_BUFFER_POOL_LIMIT = 2,
    ATTR_PER_THREAD_ACTIVITY_BUFFER = 9,
};

typedef void (*request_fn)(uint8_t **, size_t *, size_t *);
typedef void (*complete_fn)(void *, uint32_t, uint8_t *, size_t, size_t);

struct cupti {
    char path[512];
    uint32_t version;
    struct strides strides;
    int (*get_version)(uint32_t *);
    int (*get_timestamp)(uint64_t *);
    int (*register_callbacks)(request_fn, complete_fn);
    int (*register_clock)(uint64_t (*)(void));
    int (*enable)(uint32_t kind);
    int (*disable)(uint32_t kind);
    int (*enable_runtime)(uint32_t cbid, uint8_t on);
    int (*enable_driver)(uint32_t cbid, uint8_t on);
    int (*flush)(uint32_t flag);
    int (*finalize)(void);
    int (*dropped)(void *context, uint32_t stream, size_t *count);
    int (*get_attribute)(uint32_t attr, size_t *bytes, void *value);
    int (*set_attribute)(uint32_t attr, size_t *bytes, void *value);
    int (*get_result_string)(int result, const char **text);
    next_record_fn next_record;
};

/* Why CUPTI was not found. */
enum find_state {
    FIND_NO_CUDA,     /* no libcuda, or no context on it yet: look again later */
    FIND_NO_CUPTI,    /* look again later: an import may bring it */
    FIND_REFUSED      /* for good; the sentence says why */
};
struct find_fault {
    enum find_state state;
    enum status_code code;
    char says[768];
};

/* Looks for CUDA and CUPTI in this process and resolves the calls. False: `fault` says why not. Where no
 * CUPTI is mapped, `file` is loaded, unless it is NULL or empty. */
bool cupti_find(struct cupti *out, const char *file, struct find_fault *fault);

/* A torch is in this process, of Python or of C++. */
bool torch_is_mapped(void);

/* The calling thread's own calls break no capture of a CUDA graph that is under way elsewhere. */
void cupti_relax_capture(void);

/* One call inside the fence: evaluates to its code, CUPTI_GONE when it may not be made. */
#define CUPTI_CALL(cupti, member, ...)                                                             \
    ((cupti)->member == NULL || !cupti_enter()                                                     \
         ? CUPTI_GONE                                                                              \
         : cupti_leave((cupti)->member(__VA_ARGS__), #member))

bool cupti_enter(void);
int cupti_leave(int code, const char *call);

/* From the exiting thread: no further call begins; waits for one that runs, at most `ms`. */
void cupti_close(int ms);

uint64_t cupti_faults(void);

void cupti_forked(void);

/* The last call that failed and its code, as `enable answered 39 CUPTI_ERROR_...`. */
void cupti_last_fault(const struct cupti *cupti, char *out, size_t room);

#endif
