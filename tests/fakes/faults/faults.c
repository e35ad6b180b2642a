/* Preloaded into a trainer or a monitor: makes calls fail, hang or lie by name, as BRRRTOP_FAULT says.
 *
 *   BRRRTOP_FAULT="accept4:EMFILE:after=3,mmap:ENOMEM:times=2,cuptiActivityFlushAll:hang=2"
 *
 * `name:what[:after=N][:times=N]`, where `what` is the name of an errno, a number (a code of CUPTI's),
 * `hang=SECONDS` or `lie`. The first N calls pass, then so many are touched (all, unless told).
 *
 * Calls of the C library count only when they come from the agent's own code: fault_arm() finds where that
 * lies, and until then nothing happens. ptrace counts from anywhere and at once. The stand-in libcupti asks
 * fault_for() by its calls' own names. fault_set() replaces the script, fault_hits() says how often it was
 * followed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define FAULTS 16

enum { NONE, FAIL, LIE };

static struct fault {
    char name[48];
    int what, code;
    double hang_s;
    atomic_long after, times, hits;
} faults[FAULTS];
static atomic_int fault_count;
static _Atomic uintptr_t first, end;

static const struct {
    const char *name;
    int code;
} ERRNOS[] = {
    {"EPERM", EPERM},   {"EIO", EIO},       {"EBADF", EBADF},   {"EAGAIN", EAGAIN}, {"ENOMEM", ENOMEM},
    {"EACCES", EACCES}, {"EFAULT", EFAULT}, {"EINVAL", EINVAL}, {"ENFILE", ENFILE}, {"EMFILE", EMFILE},
    {"ENOSPC", ENOSPC}, {"EPIPE", EPIPE},   {"ENOSYS", ENOSYS}, {"ENOBUFS", ENOBUFS}, {"ESRCH", ESRCH},
    {"ECONNABORTED", ECONNABORTED}, {"EADDRINUSE", EADDRINUSE}, {"ECONNRESET", ECONNRESET},
};

static void read_what(struct fault *fault, const char *text)
{
    fault->what = FAIL;
    if (strncmp(text, "hang=", 5) == 0) {
        fault->what = NONE;
        fault->hang_s = strtod(text + 5, NULL);
    } else if (strcmp(text, "lie") == 0) {
        fault->what = LIE;
    } else {
        fault->code = atoi(text);
        for (size_t i = 0; i < sizeof ERRNOS / sizeof ERRNOS[0]; i++)
            if (strcmp(ERRNOS[i].name, text) == 0)
                fault->code = ERRNOS[i].code;
        if (fault->code == 0) {
            fprintf(stderr, "BRRRTOP_FAULT: what is %s?\n", text);
            abort();
        }
    }
}

EXPORT void fault_set(const char *script)
{
    char copy[1024], *rest = NULL;
    atomic_store(&fault_count, 0);
    snprintf(copy, sizeof copy, "%s", script);
    int count = 0;
    for (char *one = strtok_r(copy, ",", &rest); one != NULL && count < FAULTS; one = strtok_r(NULL, ",", &rest)) {
        struct fault *fault = &faults[count++];
        char *inner = NULL, *part = strtok_r(one, ":", &inner);
        memset(fault, 0, sizeof *fault);
        snprintf(fault->name, sizeof fault->name, "%s", part);
        atomic_store(&fault->times, -1);
        while ((part = strtok_r(NULL, ":", &inner)) != NULL) {
            if (strncmp(part, "after=", 6) == 0)
                atomic_store(&fault->after, atol(part + 6));
            else if (strncmp(part, "times=", 6) == 0)
                atomic_store(&fault->times, atol(part + 6));
            else
                read_what(fault, part);
        }
    }
    atomic_store(&fault_count, count);
}

__attribute__((constructor)) static void begin(void)
{
    const char *script = getenv("BRRRTOP_FAULT");
    if (script != NULL)
        fault_set(script);
}

static int look(struct dl_phdr_info *object, size_t size, void *name)
{
    (void)size;
    if (strstr(object->dlpi_name, name) == NULL)
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_LOAD && object->dlpi_phdr[i].p_flags & PF_X) {
            uintptr_t at = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            atomic_store(&end, at + object->dlpi_phdr[i].p_memsz);
            atomic_store(&first, at);
        }
    return 1;
}

/* From now on the calls made by the library whose path holds `name` count. 0: there is none. */
EXPORT int fault_arm(const char *name) { return dl_iterate_phdr(look, (void *)name); }

EXPORT long fault_hits(const char *name)
{
    for (int i = 0; i < atomic_load(&fault_count); i++)
        if (strcmp(faults[i].name, name) == 0)
            return atomic_load(&faults[i].hits);
    return -1;
}

/* What is to become of this call; `*code`: what it answers when it fails. Hangs here when it must. */
static int scripted(const char *name, int *code)
{
    for (int i = 0; i < atomic_load(&fault_count); i++) {
        struct fault *fault = &faults[i];
        if (strcmp(fault->name, name) != 0 || atomic_fetch_sub(&fault->after, 1) > 0)
            continue;
        if (atomic_load(&fault->times) >= 0 && atomic_fetch_sub(&fault->times, 1) <= 0) {
            atomic_store(&fault->times, 0);
            continue;
        }
        atomic_fetch_add(&fault->hits, 1);
        if (fault->hang_s > 0) {
            struct timespec left = {(time_t)fault->hang_s, (long)((fault->hang_s - (long)fault->hang_s) * 1e9)};
            while (nanosleep(&left, &left) != 0 && errno == EINTR)
                continue;
        }
        *code = fault->code;
        return fault->what;
    }
    return NONE;
}

EXPORT int fault_for(const char *name, int *code) { return atomic_load(&first) ? scripted(name, code) : NONE; }

static int touched(const char *name, void *from)
{
    uintptr_t at = (uintptr_t)from;
    int code = 0;
    if (at < atomic_load(&first) || at >= atomic_load(&end) || scripted(name, &code) != FAIL)
        return 0;
    errno = code;
    return 1;
}

/* A call of the C library: fails as told, else goes on to the real one. */
#define CALL(result, name, failure, parameters, arguments)                                          \
    EXPORT result name parameters                                                                   \
    {                                                                                               \
        static result(*real) parameters;                                                            \
        if (touched(#name, __builtin_return_address(0)))                                            \
            return failure;                                                                         \
        if (real == NULL)                                                                           \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                                              \
        return real arguments;                                                                      \
    }

CALL(int, accept4, -1, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags))
CALL(int, poll, -1, (struct pollfd *fds, nfds_t n, int ms), (fds, n, ms))
CALL(int, socket, -1, (int domain, int type, int protocol), (domain, type, protocol))
CALL(int, socketpair, -1, (int domain, int type, int protocol, int ends[2]), (domain, type, protocol, ends))
CALL(int, bind, -1, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
CALL(int, listen, -1, (int fd, int n), (fd, n))
CALL(int, getsockopt, -1, (int fd, int level, int name, void *out, socklen_t *n), (fd, level, name, out, n))
CALL(ssize_t, send, -1, (int fd, const void *at, size_t n, int flags), (fd, at, n, flags))
CALL(ssize_t, recv, -1, (int fd, void *at, size_t n, int flags), (fd, at, n, flags))
CALL(int, fstat, -1, (int fd, struct stat *out), (fd, out))
CALL(int, chmod, -1, (const char *path, mode_t mode), (path, mode))
CALL(int, unlink, -1, (const char *path), (path))
CALL(FILE *, fopen, NULL, (const char *path, const char *mode), (path, mode))
CALL(void *, dlopen, NULL, (const char *path, int flags), (path, flags))
CALL(void *, mmap, MAP_FAILED, (void *at, size_t n, int prot, int flags, int fd, off_t from), (at, n, prot, flags, fd, from))
CALL(int, madvise, -1, (void *at, size_t n, int advice), (at, n, advice))
CALL(ssize_t, process_vm_readv, -1,
     (pid_t pid, const struct iovec *to, unsigned long a, const struct iovec *from, unsigned long b, unsigned long flags),
     (pid, to, a, from, b, flags))
CALL(int, pthread_create, errno,
     (pthread_t * thread, const pthread_attr_t *how, void *(*run)(void *), void *with), (thread, how, run, with))
CALL(char *, strdup, NULL, (const char *text), (text))
CALL(char *, strndup, NULL, (const char *text, size_t n), (text, n))

/* dlsym itself allocates: the C library's own names for these. */
#define ALLOCATION(name, parameters, arguments)                                                     \
    extern void *__libc_##name parameters;                                                          \
    EXPORT void *name parameters                                                                    \
    {                                                                                               \
        return touched(#name, __builtin_return_address(0)) ? NULL : __libc_##name arguments;        \
    }
ALLOCATION(malloc, (size_t n), (n))
ALLOCATION(calloc, (size_t n, size_t size), (n, size))
ALLOCATION(realloc, (void *at, size_t n), (at, n))

EXPORT int fcntl(int fd, int what, ...)
{
    static int (*real)(int, int, ...);
    va_list rest;
    va_start(rest, what);
    void *value = va_arg(rest, void *);
    va_end(rest);
    if (touched("fcntl", __builtin_return_address(0)))
        return -1;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "fcntl");
    return real(fd, what, value);
}

EXPORT long ptrace(int request, ...)
{
    static long (*real)(int, ...);
    va_list rest;
    va_start(rest, request);
    void *a = va_arg(rest, void *), *b = va_arg(rest, void *), *c = va_arg(rest, void *);
    va_end(rest);
    int code = 0;
    if (scripted("ptrace", &code) == FAIL) {
        errno = code;
        return -1;
    }
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "ptrace");
    return real(request, a, b, c);
}
