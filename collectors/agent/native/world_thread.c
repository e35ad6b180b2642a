#include "world_thread.h"

#if defined(__x86_64__) && defined(__linux__)

#include <asm/ptrace-abi.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "world_bare.h"

#define GAP_LEAST_NS 6000        /* a thread that launches without a pause is outside for less at a time */
#define GAP_GROWS 64             /* the longer in one call, the longer it is likely to stay */
#define GAP_MOST_NS (60000)
#define GAP_CALL_NS (200000)     /* of one that waits in the kernel */
#define GAP_STUCK_NS (4 * MS)    /* of one that gets no processor */
#define NEAR_WORDS 256           /* of the stack of a thread in code that may be called by CUDA */
#define OWN_WORDS 1024           /* of one in CUDA */
#define FAR_WORDS 4096           /* of one in the C library: its frames may be large */
#define CONTROL_BLOCK_AT 0x200   /* glibc: between these lies where the thread started (struct pthread) */
#define CONTROL_BLOCK_WORDS 256
#define SAVED_RSP 21             /* words behind the restorer: struct ucontext */
#define SAVED_RIP 22

BARE bool world_thread_stands(struct traced_thread *thread, int64_t until_ns)
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
        if (code_in(&all->layout.cuda, all->words[i]))
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
        if (code_in(&all->layout.cuda, all->words[i]) && code_in(&all->layout.cuda, all->words[i] - 7) &&
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
        if (!code_in(&all->layout.system, at) || !code_in(&all->layout.system, at + 8) || !is_restorer(at))
            continue;
        uint64_t rip = all->words[i + SAVED_RIP], rsp = all->words[i + SAVED_RSP] & ~UINT64_C(7);
        return code_in(&all->layout.cuda, rip) || return_to_cuda(all, read_words(all, rsp, FAR_WORDS)) != 0;
    }
    return false;
}

/* Calls in which a thread waits for something, with no lock of the C library's. */
BARE static bool is_wait(uint64_t number)
{
    switch (number) {
    case SYS_futex: case SYS_nanosleep: case SYS_clock_nanosleep: case SYS_poll: case SYS_ppoll:
    case SYS_select: case SYS_pselect6: case SYS_epoll_wait: case SYS_epoll_pwait: case 441:
    case SYS_read: case SYS_readv: case SYS_write: case SYS_pread64: case SYS_recvfrom: case SYS_recvmsg:
    case SYS_sendto: case SYS_sendmsg: case SYS_accept: case SYS_accept4: case SYS_wait4: case SYS_waitid:
    case SYS_rt_sigtimedwait: case SYS_rt_sigsuspend: case SYS_pause: case SYS_restart_syscall:
    case SYS_io_uring_enter: case SYS_sched_yield: case SYS_ioctl: case SYS_connect: case SYS_fsync:
        return true;
    default:
        return false;
    }
}

/* Waits that the kernel ends with EINTR where others start again: they shall too. */
BARE static void start_again(int tid, struct user_regs_struct *registers)
{
    switch (registers->orig_rax) {
    case SYS_epoll_wait: case SYS_epoll_pwait: case 441: case SYS_read: case SYS_recvfrom:
        if ((long)registers->rax == -EINTR)
            CALL(SYS_ptrace, PTRACE_POKEUSR, tid, offsetof(struct user_regs_struct, rax), -514);
    }
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

BARE enum place world_thread_place(struct world_tracer *all, struct traced_thread *thread)
{
    struct user_regs_struct registers;
    struct iovec out = {&registers, sizeof registers};
    if (CALL(SYS_ptrace, PTRACE_GETREGSET, thread->tid, 1 /* NT_PRSTATUS */, &out) != 0)
        return LOST;
    start_again(thread->tid, &registers);
    bool library = code_in(&all->layout.system, registers.rip);
    bool inside = code_in(&all->layout.cuda, registers.rip);
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
    if (library && !((long)registers.orig_rax >= 0 && is_wait(registers.orig_rax)))
        return INSIDE; /* perhaps with the lock of an allocator */
    return OUTSIDE;
}

#endif
