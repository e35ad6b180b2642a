#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "trace.h"
#include "world_tracer.h"

#if defined(__x86_64__) && defined(__linux__)

#define RESUME_NS NS_PER_S         /* the child has been stopped alone, or gets no processor: the kernel lets go */
#define SURE_NS (100 * NS_PER_MS) /* longer than the child takes to see that its time is over */

/* Static, as the child uses it after a thread of ours may have ended. */
static struct world_tracer shared;
static _Alignas(16) char stack[128u << 10];
static pid_t child = -1;
static bool named; /* as the one that may trace us */

/* A runtime linked into a program cannot be told from the program: so nothing of the runtime's API is
 * switched where the world is held (trace.c), and the driver's library is what counts. */
static const char *const CUDA[] = {"libcuda.so", "libcudart", "libcudadebugger", "libcupti", "libnvidia-", "libnvperf"};
static const char *const SYSTEM[] = {"libc.so",     "libc-",      "ld-linux",  "ld-2",         "ld-musl",
                                     "libpthread",  "libdl",      "librt",     "libstdc++",    "libgcc_s",
                                     "libjemalloc", "libtcmalloc", "libmimalloc", "linux-vdso", "libasan",
                                     "libtsan"};

static bool add(struct code_ranges *ranges, uint64_t start, uint64_t end)
{
    if (ranges->count == CODE_RANGES)
        return false;
    ranges->of[ranges->count].start = start;
    ranges->of[ranges->count++].end = end;
    if (start < ranges->least)
        ranges->least = start;
    if (end > ranges->most)
        ranges->most = end;
    return true;
}

static bool begins(const char *name, const char *const *with, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, with[i], strlen(with[i])) == 0)
            return true;
    return false;
}

static int look(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    bool cuda = begins(name, CUDA, sizeof CUDA / sizeof CUDA[0]);
    bool system = begins(name, SYSTEM, sizeof SYSTEM / sizeof SYSTEM[0]);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uint64_t start = info->dlpi_addr + part->p_vaddr, end = start + part->p_memsz;
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        bool ours = (uintptr_t)world_hold >= start && (uintptr_t)world_hold < end;
        if (cuda && !add(&shared.cuda, start, end))
            return 1;
        if (!cuda && (system || ours) && !add(&shared.system, start, end))
            return 1;
    }
    return 0;
}

static void wake(void)
{
    syscall(SYS_futex, &shared.phase, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static int wait_while(int phase, int64_t until_ns)
{
    int now;
    while ((now = atomic_load(&shared.phase)) == phase && atomic_load(&shared.alive) && mono_ns() < until_ns) {
        struct timespec most = {0, NS_PER_MS};
        syscall(SYS_futex, &shared.phase, FUTEX_WAIT, phase, &most, NULL, 0);
    }
    return now;
}

/* Where only ancestors may trace (yama, 1), a process may name one more. */
static bool asks_leave(void)
{
    char scope = '0';
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &scope, 1) != 1)
            scope = '0';
        close(fd);
    }
    return scope == '1';
}

enum world world_hold(int patience_ms, int wait_ms)
{
    memset(&shared, 0, offsetof(struct world_tracer, threads));
    shared.cuda.least = shared.system.least = UINT64_MAX;
    if (dl_iterate_phdr(look, NULL) != 0)
        return WORLD_REFUSED; /* more than there is room for */
    shared.process = getpid();
    shared.agent = (int)syscall(SYS_gettid);
    shared.patience_ns = patience_ms * NS_PER_MS;
    shared.wait_ns = wait_ms * NS_PER_MS;
    atomic_store(&shared.phase, TRACER_STARTS);
    atomic_store(&shared.alive, 1);
    /* No signal at its end: the trainer's own waits never see it. */
    child = world_tracer_clone(stack + sizeof stack, &shared);
    if (child < 0)
        return WORLD_REFUSED;
    named = asks_leave();
    if (named)
        prctl(PR_SET_PTRACER, child, 0, 0, 0);
    atomic_store(&shared.phase, TRACER_WORKS);
    wake();
    int64_t until_ns = mono_ns() + shared.patience_ns + SURE_NS;
    if (wait_while(TRACER_WORKS, until_ns) == TRACER_HOLDS)
        return WORLD_HELD;
    world_resume();
    return shared.why == TRACER_NOT_PERMITTED ? WORLD_REFUSED : WORLD_BUSY;
}

bool world_lost(void)
{
    return child >= 0 && (!atomic_load(&shared.alive) || atomic_load(&shared.phase) != TRACER_HOLDS);
}

bool world_resume(void)
{
    if (child < 0)
        return true;
    int holds = TRACER_HOLDS;
    bool held = atomic_load(&shared.alive) && atomic_compare_exchange_strong(&shared.phase, &holds, TRACER_RELEASES);
    if (!held)
        atomic_store(&shared.phase, TRACER_RELEASES);
    wake();
    struct timespec most = {RESUME_NS / NS_PER_S, 0};
    int64_t until_ns = mono_ns() + RESUME_NS;
    while (atomic_load(&shared.alive) && mono_ns() < until_ns)
        syscall(SYS_futex, &shared.alive, FUTEX_WAIT, 1, &most, NULL, 0);
    if (atomic_load(&shared.alive))
        kill(child, SIGKILL);
    while (syscall(SYS_wait4, child, NULL, __WALL, NULL) < 0 && errno == EINTR)
        continue;
    child = -1;
    if (named)
        prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    return held;
}

void world_forked(void) { child = -1; }

#else

enum world world_hold(int patience_ms, int wait_ms)
{
    (void)patience_ms, (void)wait_ms;
    return WORLD_REFUSED;
}

bool world_lost(void) { return false; }

bool world_resume(void) { return true; }

void world_forked(void) {}

#endif
