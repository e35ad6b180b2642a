#if defined(__x86_64__) && defined(__linux__)

#include <asm/ptrace-abi.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/ptrace.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "trace.h"
#include "world_tracer.h"

#define MS 1000000LL
#define SPIN_NS 20000
#define HOLD_NS (300 * MS)       /* CUPTI may hang, on a lock; but it also waits for all that is queued */
#define HOLD_MOST_NS (3000 * MS) /* on the device */
#define LOCKED_TIMES 20          /* looks in a row, a millisecond apart */
#define START_NS (300 * MS)
#define WAIT_LEAST_NS (2 * MS)   /* threads outside are held so long for those inside, then longer */
#define STOP_NS (1 * MS)         /* of a round: a thread without a processor, or in a driver, stops later */
#define STOP_LAST_NS (30 * MS)   /* before we leave one alone that was asked to stop */
#define GAP_LATE_NS 50000
#define GAP_LEAST_NS 6000        /* a thread that launches without a pause is outside for less at a time */
#define GAP_GROWS 64             /* the longer in one call, the longer it is likely to stay */
#define GAP_MOST_NS (60000)
#define GAP_CALL_NS (200000)     /* of one that waits in the kernel */
#define GAP_STUCK_NS (4 * MS)    /* of one that gets no processor */
#define STILL_NS (10 * MS)       /* in one system call */
#define NEAR_WORDS 256           /* of the stack of a thread in code that may be called by CUDA */
#define OWN_WORDS 1024           /* of one in CUDA */
#define FAR_WORDS 4096           /* of one in the C library: its frames may be large */
#define CONTROL_BLOCK_AT 0x200   /* glibc: between these lies where the thread started (struct pthread) */
#define CONTROL_BLOCK_WORDS 256
#define SAVED_RSP 21             /* words behind the restorer: struct ucontext */
#define SAVED_RIP 22

/* No sanitizer, no library: this runs in a process of its own on our memory, with our thread's errno. All
 * that it may call is the kernel. */
#define BARE __attribute__((no_sanitize("address", "undefined", "thread"), no_stack_protector))
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 11
#undef BARE
#define BARE __attribute__((no_sanitize("address", "undefined", "thread"), optimize("no-stack-protector")))
#endif

BARE static inline long call6(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define CALL(number, a, b, c, d) call6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

BARE static inline int64_t now_ns(void)
{
    struct timespec t = {0, 0};
    CALL(SYS_clock_gettime, CLOCK_MONOTONIC, &t, 0, 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

BARE static inline void pause_ns(long ns)
{
    struct timespec t = {0, ns};
    CALL(SYS_nanosleep, &t, 0, 0, 0);
}

BARE static inline long trace(long what, int tid, void *data) { return CALL(SYS_ptrace, what, tid, 0, data); }

BARE static inline bool code_in(const struct code_ranges *ranges, uint64_t address)
{
    if (address < ranges->least || address >= ranges->most)
        return false;
    for (uint32_t i = 0; i < ranges->count; i++)
        if (address >= ranges->of[i].start && address < ranges->of[i].end)
            return true;
    return false;
}

/* --- one thread --- */

/* ASIDE, OWNED: seized, and let run; the first will be tried again. */
enum { RUNS, HELD, ASIDE, OWNED, GONE };
/* OUTSIDE: of CUDA, and with no lock of the C library's. CUDAS_OWN: a thread that CUDA began. LOST: it is gone. */
enum place { OUTSIDE, INSIDE, CUDAS_OWN, LOST };

/* Whether an interrupted thread stands by then. Signals for it go on to it first. */
BARE static bool stands(struct traced_thread *thread, int64_t until_ns)
{
    int64_t spins_ns = now_ns() + SPIN_NS;
    for (;;) {
        int status = 0;
        long told = CALL(SYS_wait4, thread->tid, &status, __WALL | WNOHANG, 0);
        if (told == 0) {
            int64_t now = now_ns();
            if (now > until_ns)
                return false;
            if (now > spins_ns)
                pause_ns(2000);
            continue;
        }
        thread->asked = false;
        if (told < 0 || !WIFSTOPPED(status)) {
            thread->state = GONE;
            return true;
        }
        if (status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) == SIGTRAP)
            return true;
        if (status >> 16 == PTRACE_EVENT_STOP) { /* the whole process is stopped by a signal */
            trace(PTRACE_LISTEN, thread->tid, NULL);
            return false;
        }
        thread->asked = true; /* still */
        trace(PTRACE_CONT, thread->tid, (void *)(long)WSTOPSIG(status));
    }
}

BARE static long read_words(struct world_tracer *all, uint64_t address, uint32_t count)
{
    struct iovec here = {all->words, count * sizeof all->words[0]};
    struct iovec there = {(void *)address, here.iov_len};
    long bytes = call6(SYS_process_vm_readv, all->process, (long)&here, 1, (long)&there, 1, 0);
    if (bytes <= 0) { /* up to the end of the page, and of the next ones */
        here.iov_len = there.iov_len = 4096 - address % 4096;
        bytes = call6(SYS_process_vm_readv, all->process, (long)&here, 1, (long)&there, 1, 0);
    }
    return bytes > 0 ? bytes / (long)sizeof all->words[0] : 0;
}

BARE static bool any_in_cuda(const struct world_tracer *all, long count)
{
    for (long i = 0; i < count; i++)
        if (code_in(&all->cuda, all->words[i]))
            return true;
    return false;
}

/* Behind a call, as its bytes tell: of 5 (E8), or of 2 to 7 (FF /2). Programs keep addresses of CUDA's
 * functions on their stacks too. */
BARE static bool is_return(uint64_t address)
{
    const uint8_t *at = (const uint8_t *)address;
    if (at[-5] == 0xe8)
        return true;
    for (int bytes = 2; bytes <= 7; bytes++)
        if (at[-bytes] == 0xff && (at[1 - bytes] & 0x38) == 0x10)
            return true;
    return false;
}

/* The outermost one that is among the words; 0: there is none. */
BARE static uint64_t return_to_cuda(const struct world_tracer *all, long count)
{
    for (long i = count - 1; i >= 0; i--)
        if (code_in(&all->cuda, all->words[i]) && code_in(&all->cuda, all->words[i] - 7) &&
            is_return(all->words[i]))
            return all->words[i];
    return 0;
}

/* `mov $15, %rax; syscall`: where a handler of a signal returns to. */
BARE static bool is_restorer(uint64_t address)
{
    static const uint8_t CODE[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    for (unsigned i = 0; i < sizeof CODE; i++)
        if (((const uint8_t *)address)[i] != CODE[i])
            return false;
    return true;
}

/* A signal's handler may run inside CUDA: the registers saved for it are larger than what was read of
 * the stack, and CUDA's frames lie behind them. */
BARE static bool interrupted_in_cuda(struct world_tracer *all, long count)
{
    for (long i = 0; i + SAVED_RIP < count; i++) {
        uint64_t at = all->words[i];
        if (!code_in(&all->system, at) || !code_in(&all->system, at + 8) || !is_restorer(at))
            continue;
        uint64_t rip = all->words[i + SAVED_RIP], rsp = all->words[i + SAVED_RSP] & ~UINT64_C(7);
        return code_in(&all->cuda, rip) || return_to_cuda(all, read_words(all, rsp, FAR_WORDS)) != 0;
    }
    return false;
}

/* Calls in which a thread waits for something, with no lock of the C library's. */
BARE static bool is_wait(uint64_t number)
{
    switch (number) {
    case SYS_futex: case SYS_nanosleep: case SYS_clock_nanosleep: case SYS_poll: case SYS_ppoll:
    case SYS_select: case SYS_pselect6: case SYS_epoll_wait: case SYS_epoll_pwait: case 441 /* epoll_pwait2 */:
    case SYS_read: case SYS_readv: case SYS_write: case SYS_writev: case SYS_pread64: case SYS_recvfrom:
    case SYS_recvmsg: case SYS_recvmmsg: case SYS_sendto: case SYS_sendmsg: case SYS_sendmmsg: case SYS_accept:
    case SYS_accept4: case SYS_connect: case SYS_wait4: case SYS_waitid: case SYS_rt_sigtimedwait:
    case SYS_rt_sigsuspend: case SYS_pause: case SYS_restart_syscall: case SYS_io_uring_enter: case SYS_ioctl:
    case SYS_io_getevents: case 333 /* io_pgetevents */: case SYS_semop: case SYS_semtimedop: case SYS_msgrcv:
    case SYS_msgsnd: case SYS_mq_timedsend: case SYS_mq_timedreceive: case SYS_sched_yield: case SYS_flock:
    case SYS_fcntl: case SYS_fsync: case SYS_fdatasync: case SYS_pwrite64: case 327 /* preadv2 */:
    case 328 /* pwritev2 */: case 449 /* futex_waitv */: case SYS_sendfile: case SYS_splice:
        return true;
    default:
        return false;
    }
}

/* Calls that allocators and the C library's threads make with a lock, however long they take. */
BARE static bool is_of_memory(uint64_t number)
{
    switch (number) {
    case SYS_brk: case SYS_mmap: case SYS_munmap: case SYS_mremap: case SYS_mprotect: case SYS_madvise:
    case SYS_clone: case 435 /* clone3 */: case SYS_exit:
        return true;
    default:
        return false;
    }
}

/* Whether a thread in the C library waits in the kernel with no lock: any call but those of memory takes that
 * long only where it waits. */
BARE static bool waits(const struct traced_thread *thread, const struct user_regs_struct *registers)
{
    if ((long)registers->orig_rax < 0 || is_of_memory(registers->orig_rax))
        return false;
    return is_wait(registers->orig_rax) || now_ns() - thread->still_ns > STILL_NS;
}

/* The register with a time limit that counts from the call's beginning and that the kernel does not bring up to
 * date itself; 0: there is none. In milliseconds (epoll), or where a timespec lies. */
BARE static size_t limit_of(uint64_t number)
{
    switch (number) {
    case SYS_epoll_wait: case SYS_epoll_pwait: case 441 /* epoll_pwait2 */: case SYS_semtimedop:
        return offsetof(struct user_regs_struct, r10);
    case SYS_rt_sigtimedwait:
        return offsetof(struct user_regs_struct, rdx);
    case SYS_io_getevents: case 333 /* io_pgetevents */:
        return offsetof(struct user_regs_struct, r8);
    default:
        return 0;
    }
}

/* One of this thread's, or one that no thread refers to any more: a hold is shorter. NULL: all are taken. */
BARE static struct limited_wait *limited(struct world_tracer *all, int tid, int64_t now)
{
    struct limited_wait *free = NULL;
    for (int i = 0; i < LIMITED_WAITS; i++) {
        if (all->limited[i].tid == tid)
            return &all->limited[i];
        if (all->limited[i].until_ns + 2 * HOLD_MOST_NS < now)
            free = &all->limited[i];
    }
    return free;
}

/* Begins a wait again with what is left of its limit, counted from when we first met it in there. That it is
 * still the same wait shows in its register, which has what we put there: an address of ours, or bits that an
 * int has not. Only in the C library, which forgets that register when the call is over. */
BARE static void shorten(struct world_tracer *all, int tid, const struct user_regs_struct *registers)
{
    size_t at = limit_of(registers->orig_rax);
    uint64_t given = at ? *(const uint64_t *)((const char *)registers + at) : 0;
    bool in_ms = registers->orig_rax == SYS_epoll_wait || registers->orig_rax == SYS_epoll_pwait;
    int64_t now = now_ns();
    struct limited_wait *wait = limited(all, tid, now);
    if (at == 0 || wait == NULL || (in_ms ? (int32_t)given < 0 : given == 0))
        return;
    if (wait->tid != tid || wait->given != given) {
        if (!in_ms && read_words(all, given, 2) < 2)
            return;
        int64_t limit_s = (int64_t)all->words[0], limit_ns = (int64_t)all->words[1];
        if (!in_ms && (limit_s < 0 || limit_s > INT32_MAX))
            return;
        wait->until_ns = now + (in_ms ? (int32_t)given * MS : limit_s * 1000 * MS + limit_ns);
    }
    int64_t left_ns = wait->until_ns > now ? wait->until_ns - now : 0;
    wait->tid = tid;
    wait->left[0] = left_ns / (1000 * MS);
    wait->left[1] = left_ns % (1000 * MS);
    wait->given = in_ms ? UINT64_C(1) << 62 | (uint64_t)((left_ns + MS - 1) / MS) : (uint64_t)wait->left;
    CALL(SYS_ptrace, PTRACE_POKEUSR, tid, at, wait->given);
}

/* A call that our interrupt ended with EINTR, which says that it did nothing, begins again as others do by
 * themselves, unless a signal of its own comes with it; not so close, whose descriptor is gone. */
BARE static void start_again(struct world_tracer *all, int tid, const struct user_regs_struct *registers, bool library)
{
    long result = (long)registers->rax, number = (long)registers->orig_rax;
    if (number < 0 || (result != -EINTR && result != -514) || number == SYS_close || number == 436 /* close_range */)
        return;
    if (library)
        shorten(all, tid, registers);
    if (result == -EINTR)
        CALL(SYS_ptrace, PTRACE_POKEUSR, tid, offsetof(struct user_regs_struct, rax), -514);
}

BARE static uint32_t random_below(struct world_tracer *all, int64_t most)
{
    all->random ^= all->random << 13;
    all->random ^= all->random >> 17;
    all->random ^= all->random << 5;
    return all->random % (uint32_t)most;
}

/* When one that is inside is tried again. Uneven: a loop of one call and one piece of work could keep
 * step with even tries. One that goes from call to call is tried often, as it is outside for less than
 * a microsecond each time; one that is in a long call, more and more seldom; one that has not moved at
 * all waits, or gets no processor, and would never get anywhere if it was stopped each time it does. */
BARE static void set_due(struct world_tracer *all, struct traced_thread *thread,
                         const struct user_regs_struct *registers, uint64_t call)
{
    uint64_t at = registers->rip ^ registers->rsp << 1 ^ registers->rax << 9 ^ registers->rcx << 17 ^
                  registers->rdx << 25 ^ registers->rbx << 33 ^ registers->rsi << 41 ^ registers->rdi << 49;
    int64_t now = now_ns();
    bool waits = (long)registers->orig_rax >= 0;
    if (call != thread->call || thread->call_ns == 0) {
        thread->call = call;
        thread->call_ns = now;
    }
    if (at != thread->at) {
        thread->still_ns = now;
        int64_t more_ns = (now - thread->call_ns) / GAP_GROWS, half_ns = thread->gap_ns / 2;
        int64_t usual_ns = GAP_LEAST_NS + (more_ns < GAP_MOST_NS ? more_ns : GAP_MOST_NS);
        thread->gap_ns = usual_ns > half_ns || half_ns < GAP_MOST_NS ? usual_ns : half_ns;
    } else {
        int64_t most_ns = waits ? GAP_CALL_NS : GAP_STUCK_NS;
        thread->gap_ns = 2 * thread->gap_ns < most_ns ? 2 * thread->gap_ns : most_ns;
    }
    thread->at = at;
    thread->due_ns = now + thread->gap_ns / 4 + random_below(all, 1 + 3 * thread->gap_ns / 2);
}

/* Of one that stands. Says too when it is to be tried again. */
BARE static enum place place_of(struct world_tracer *all, struct traced_thread *thread)
{
    struct user_regs_struct registers;
    struct iovec out = {&registers, sizeof registers};
    if (CALL(SYS_ptrace, PTRACE_GETREGSET, thread->tid, 1 /* NT_PRSTATUS */, &out) != 0)
        return LOST;
    bool library = code_in(&all->system, registers.rip);
    start_again(all, thread->tid, &registers, library);
    bool inside = code_in(&all->cuda, registers.rip);
    uint64_t top = registers.rsp & ~UINT64_C(7), words = inside ? OWN_WORDS : library ? FAR_WORDS : NEAR_WORDS;
    if (registers.fs_base > top && (registers.fs_base - top) / sizeof top < words)
        words = (registers.fs_base - top) / sizeof top; /* the stack of a thread ends there */
    long stacked = read_words(all, top, (uint32_t)words);
    uint64_t call = return_to_cuda(all, stacked);
    set_due(all, thread, &registers, call);
    if (inside || call != 0) {
        long count = read_words(all, registers.fs_base + CONTROL_BLOCK_AT, CONTROL_BLOCK_WORDS);
        return any_in_cuda(all, count) ? CUDAS_OWN : INSIDE;
    }
    if (interrupted_in_cuda(all, stacked))
        return INSIDE;
    if (library && !waits(thread, &registers))
        return INSIDE; /* perhaps with the lock of an allocator */
    return OUTSIDE;
}

/* --- all of them --- */

#define EACH_THREAD(all, thread)                                                                   \
    for (struct traced_thread *thread = (all)->threads; thread < (all)->threads + (all)->count; thread++)

BARE static struct traced_thread *known(struct world_tracer *all, int tid)
{
    EACH_THREAD(all, thread)
        if (thread->tid == tid)
            return thread;
    return NULL;
}

#define PATH_BYTES 64

BARE static char *append(char *end, const char *text)
{
    while (*text)
        *end++ = *text++;
    return end;
}

BARE static char *append_number(char *end, int number)
{
    char digits[12];
    int n = 0;
    for (; number > 0; number /= 10)
        digits[n++] = (char)('0' + number % 10);
    while (n > 0)
        *end++ = digits[--n];
    return end;
}

enum { RUNNING = -1, UNTOLD = -2 };

/* The system call in which a thread sleeps. */
BARE static int call_of(const struct world_tracer *all, int tid)
{
    char path[PATH_BYTES], *end = append_number(append(path, "/proc/"), all->process), text[8];
    *append(append_number(append(end, "/task/"), tid), "/syscall") = '\0';
    int fd = (int)CALL(SYS_open, path, O_RDONLY | O_CLOEXEC, 0, 0), call = UNTOLD;
    if (fd < 0)
        return UNTOLD;
    long bytes = CALL(SYS_read, fd, text, sizeof text, 0);
    CALL(SYS_close, fd, 0, 0, 0);
    for (long i = 0; i < bytes && text[i] >= '0' && text[i] <= '9'; i++)
        call = (call < 0 ? 0 : call * 10) + (text[i] - '0');
    return bytes > 0 && call == UNTOLD ? RUNNING : call;
}

/* Seizes what is new. Negative: not permitted; else how many. */
BARE static int seize_new(struct world_tracer *all)
{
    char path[PATH_BYTES], *end = append(append_number(append(path, "/proc/"), all->process), "/task");
    int fresh = 0;
    *end = '\0';
    int fd = (int)CALL(SYS_open, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0, 0);
    if (fd < 0)
        return -1;
    long bytes;
    while ((bytes = CALL(SYS_getdents64, fd, all->entries, sizeof all->entries, 0)) > 0)
        for (long i = 0; i < bytes; i += *(unsigned short *)(all->entries + i + 16)) {
            int tid = 0;
            for (const char *c = all->entries + i + 19; *c >= '0' && *c <= '9'; c++)
                tid = tid * 10 + (*c - '0');
            if (tid == 0 || tid == all->agent || known(all, tid) != NULL)
                continue;
            long code = all->count < TRACED_THREADS ? trace(PTRACE_SEIZE, tid, NULL) : -EPERM;
            if (code == -ESRCH)
                continue;
            if (code != 0) {
                fresh = -1;
                goto over;
            }
            all->threads[all->count++] = (struct traced_thread){.tid = tid, .state = RUNS};
            fresh++;
        }
over:
    CALL(SYS_close, fd, 0, 0, 0);
    return fresh;
}

/* Holds one that stands outside, lets any other go on. Whether it is still to be caught. */
BARE static bool runs_on(struct world_tracer *all, struct traced_thread *thread)
{
    switch (place_of(all, thread)) {
    case OUTSIDE:
        thread->state = HELD;
        thread->in_ns = 0;
        return false;
    case CUDAS_OWN:
        thread->state = OWNED;
        trace(PTRACE_CONT, thread->tid, NULL);
        return false;
    case INSIDE:
        thread->in_ns = thread->in_ns ? thread->in_ns : now_ns();
        trace(PTRACE_CONT, thread->tid, NULL);
        return true;
    case LOST:
        break;
    }
    thread->state = GONE;
    return false;
}

/* Stops those that run and are due, holds those outside, lets the others go on. How many do, or do not
 * stand yet: one that is late is waited for no longer, or the others were tried too seldom. */
BARE static int round_trip(struct world_tracer *all)
{
    int inside = 0;
    int64_t now = now_ns(), until_ns = now + STOP_NS;
    EACH_THREAD(all, thread) {
        thread->late = thread->asked;
        if (thread->state != RUNS || thread->asked || thread->due_ns > now)
            continue;
        /* A close that is cut short cannot begin again, and a file system may leave unsaved what was written. */
        if (thread->at == 0 && call_of(all, thread->tid) == SYS_close)
            thread->due_ns = now + MS;
        else
            thread->asked = trace(PTRACE_INTERRUPT, thread->tid, NULL) == 0;
    }
    EACH_THREAD(all, thread) {
        if (thread->state != RUNS)
            continue;
        if (!thread->asked || !stands(thread, thread->late ? 0 : until_ns)) {
            if (thread->asked)
                thread->due_ns = now_ns() + GAP_LATE_NS;
            inside++;
        } else if (thread->state != GONE) {
            inside += runs_on(all, thread);
        }
    }
    return inside;
}

/* Between two rounds: a signal that a thread of ours takes is shown to us first. */
BARE static void pass_signals(struct world_tracer *all)
{
    int status = 0;
    long tid;
    while ((tid = CALL(SYS_wait4, -1, &status, __WALL | WNOHANG, 0)) > 0) {
        struct traced_thread *thread = known(all, (int)tid);
        if (!WIFSTOPPED(status) && thread != NULL)
            thread->state = GONE;
        else if (status >> 16 == PTRACE_EVENT_STOP && WSTOPSIG(status) != SIGTRAP)
            trace(PTRACE_LISTEN, (int)tid, NULL);
        else if (thread != NULL && thread->asked && status >> 16) {
            thread->asked = false; /* it stands late */
            if (thread->state == RUNS)
                runs_on(all, thread);
            else
                trace(PTRACE_CONT, (int)tid, NULL);
        }
        else
            trace(PTRACE_CONT, (int)tid, status >> 16 ? NULL : (void *)(long)WSTOPSIG(status));
    }
}

/* Until the next of those that run is due. */
BARE static void pause_between(struct world_tracer *all)
{
    int64_t due_ns = now_ns() + MS;
    pass_signals(all);
    EACH_THREAD(all, thread)
        if (thread->state == RUNS && thread->due_ns < due_ns)
            due_ns = thread->due_ns;
    int64_t left_ns = due_ns - now_ns();
    if (left_ns > SPIN_NS)
        pause_ns(left_ns);
    while (now_ns() < due_ns)
        __builtin_ia32_pause();
}

/* Tries the one that has been inside for longest until it comes out, while the others work. */
BARE static bool catch_slow(struct world_tracer *all, int64_t until_ns)
{
    struct traced_thread *slow = NULL;
    EACH_THREAD(all, thread) {
        if (thread->state == RUNS && thread->in_ns && (slow == NULL || thread->in_ns < slow->in_ns))
            slow = thread;
    }
    EACH_THREAD(all, thread) {
        if (thread->state == HELD)
            trace(PTRACE_CONT, thread->tid, NULL);
        if (thread != slow && (thread->state == HELD || (thread->state == RUNS && !thread->asked)))
            thread->state = ASIDE;
    }
    while (now_ns() < until_ns && atomic_load(&all->phase) == TRACER_WORKS) {
        round_trip(all);
        if (slow == NULL || slow->state != RUNS)
            break;
        pause_between(all);
    }
    EACH_THREAD(all, thread)
        if (thread->state == ASIDE)
            thread->state = RUNS;
    return slow == NULL || slow->state != RUNS;
}

BARE static bool hold_all(struct world_tracer *all)
{
    int64_t until_ns = now_ns() + all->patience_ns, held_ns = now_ns(), most_ns = WAIT_LEAST_NS;
    for (;;) {
        int fresh = seize_new(all);
        if (fresh < 0) {
            all->why = TRACER_NOT_PERMITTED;
            return false;
        }
        int inside = round_trip(all);
        if (inside == 0 && seize_new(all) == 0)
            return true;
        int64_t now = now_ns();
        if (now > until_ns || atomic_load(&all->phase) != TRACER_WORKS)
            return false;
        if (inside > 0 && now - held_ns > most_ns) {
            if (!catch_slow(all, until_ns))
                return false;
            held_ns = now_ns();
            most_ns = 2 * most_ns < all->wait_ns ? 2 * most_ns : all->wait_ns;
        } else if (inside > 0) {
            pause_between(all);
        }
    }
}

/* Whoever was asked to stop is waited for: what it waits for in the kernel must begin again. Of the
 * rest the kernel lets go when we end. */
BARE static void let_go(struct world_tracer *all)
{
    EACH_THREAD(all, thread)
        if (thread->state == HELD)
            trace(PTRACE_DETACH, thread->tid, NULL);
    int64_t until_ns = now_ns() + STOP_LAST_NS;
    EACH_THREAD(all, thread) {
        if (thread->state == RUNS && thread->asked && stands(thread, until_ns) && thread->state != GONE) {
            place_of(all, thread);
            trace(PTRACE_DETACH, thread->tid, NULL);
        }
    }
}

BARE static void wait_while(struct world_tracer *all, int phase, int64_t most_ns)
{
    int64_t until_ns = now_ns() + most_ns;
    while (atomic_load(&all->phase) == phase && now_ns() < until_ns) {
        struct timespec most = {0, MS};
        CALL(SYS_futex, &all->phase, FUTEX_WAIT, phase, &most);
        pass_signals(all);
    }
}

/* Until the agent's thread has waited for a lock for a while, which somebody held may have, or where nobody can tell. */
BARE static void hold_on(struct world_tracer *all)
{
    int64_t until_ns = now_ns() + HOLD_MOST_NS;
    wait_while(all, TRACER_HOLDS, HOLD_NS);
    for (int locked = 0; locked < LOCKED_TIMES && now_ns() < until_ns;) {
        if (atomic_load(&all->phase) != TRACER_HOLDS)
            return;
        int call = call_of(all, all->agent);
        locked = call == SYS_futex || call == UNTOLD ? locked + 1 : 0;
        wait_while(all, TRACER_HOLDS, MS);
    }
}

BARE static int work(void *given)
{
    struct world_tracer *all = given;
    CALL(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
    CALL(SYS_prctl, PR_SET_TIMERSLACK, 1, 0, 0);
    wait_while(all, TRACER_STARTS, START_NS);
    all->random = (uint32_t)now_ns() | 1;
    bool held = atomic_load(&all->phase) == TRACER_WORKS && hold_all(all);
    int works = TRACER_WORKS;
    if (held && atomic_compare_exchange_strong(&all->phase, &works, TRACER_HOLDS)) {
        CALL(SYS_futex, &all->phase, FUTEX_WAKE, 1, 0);
        hold_on(all);
    }
    let_go(all);
    int phase = atomic_load(&all->phase);
    if (phase == TRACER_HOLDS || phase == TRACER_WORKS)
        atomic_store(&all->phase, phase == TRACER_HOLDS ? TRACER_EXPIRED : TRACER_FAILED);
    CALL(SYS_futex, &all->phase, FUTEX_WAKE, 1, 0);
    return 0;
}

#define UNNAMED __attribute__((unused)) /* clang allows nothing but assembly in a naked function */

__attribute__((naked)) static long clone_bare(long flags UNNAMED, void *stack_end UNNAMED, void *given UNNAMED,
                                              int (*body)(void *) UNNAMED)
{
    __asm__("mov %rdx, %r9\n"
            "mov %rcx, %r8\n"
            "mov $56, %eax\n" /* clone; it keeps r8 and r9 */
            "xor %edx, %edx\n"
            "mov %r9, %r10\n" /* `alive`, its first member */
            "syscall\n"
            "test %rax, %rax\n"
            "jnz 1f\n"
            "xor %ebp, %ebp\n"
            "mov %r9, %rdi\n"
            "call *%r8\n"
            "xor %edi, %edi\n"
            "mov $60, %eax\n" /* exit */
            "syscall\n"
            "1: ret\n");
}

pid_t world_tracer_clone(void *stack_end, struct world_tracer *shared)
{
    uintptr_t end = (uintptr_t)stack_end & ~(uintptr_t)15;
    return (pid_t)clone_bare(CLONE_VM | CLONE_FS | CLONE_UNTRACED | CLONE_CHILD_CLEARTID, (void *)end, shared, work);
}

#endif
