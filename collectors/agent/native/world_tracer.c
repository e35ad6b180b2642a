#include "world_tracer.h"

#if defined(__x86_64__) && defined(__linux__)

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "world_bare.h"
#include "world_thread.h"

#define HOLD_NS (300 * MS)       /* CUPTI may hang, on a lock; but it also waits for all that is queued */
#define HOLD_MOST_NS (3000 * MS) /* on the device */
#define LOCKED_TIMES 20          /* looks in a row, a millisecond apart */
#define START_NS (300 * MS)
#define WAIT_LEAST_NS (2 * MS)   /* threads outside are held so long for those inside, then longer */
#define STOP_NS (1 * MS)         /* of a round: a thread without a processor, or in a driver, stops later */
#define STOP_LAST_NS (30 * MS)   /* before we leave one alone that was asked to stop */
#define GAP_LATE_NS 50000

BARE static struct traced_thread *known(struct world_tracer *all, int tid)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->threads[i].tid == tid)
            return &all->threads[i];
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
            if (all->count == TRACED_THREADS) {
                fresh = -1;
                goto over;
            }
            long code = trace(PTRACE_SEIZE, tid, NULL);
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
    switch (world_thread_place(all, thread)) {
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
    for (uint32_t i = 0; i < all->count; i++) {
        struct traced_thread *thread = &all->threads[i];
        thread->late = thread->asked;
        if (thread->state == RUNS && !thread->asked && thread->due_ns <= now)
            thread->asked = trace(PTRACE_INTERRUPT, thread->tid, NULL) == 0;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        struct traced_thread *thread = &all->threads[i];
        if (thread->state != RUNS)
            continue;
        if (!thread->asked || !world_thread_stands(thread, thread->late ? 0 : until_ns)) {
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
    for (uint32_t i = 0; i < all->count; i++)
        if (all->threads[i].state == RUNS && all->threads[i].due_ns < due_ns)
            due_ns = all->threads[i].due_ns;
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
    for (uint32_t i = 0; i < all->count; i++) {
        struct traced_thread *thread = &all->threads[i];
        if (thread->state == RUNS && thread->in_ns && (slow == NULL || thread->in_ns < slow->in_ns))
            slow = thread;
    }
    for (uint32_t i = 0; i < all->count; i++) {
        struct traced_thread *thread = &all->threads[i];
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
    for (uint32_t i = 0; i < all->count; i++)
        if (all->threads[i].state == ASIDE)
            all->threads[i].state = RUNS;
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
    for (uint32_t i = 0; i < all->count; i++)
        if (all->threads[i].state == HELD)
            trace(PTRACE_DETACH, all->threads[i].tid, NULL);
    int64_t until_ns = now_ns() + STOP_LAST_NS;
    for (uint32_t i = 0; i < all->count; i++) {
        struct traced_thread *thread = &all->threads[i];
        if (thread->state == RUNS && thread->asked && world_thread_stands(thread, until_ns) && thread->state != GONE) {
            world_thread_place(all, thread);
            trace(PTRACE_DETACH, thread->tid, NULL);
        }
    }
}

BARE static void turn(struct world_tracer *all, int phase)
{
    atomic_store(&all->phase, phase);
    CALL(SYS_futex, &all->phase, FUTEX_WAKE, 1, 0);
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

/* Whether the agent's thread waits for a lock, which somebody held may have. Where nobody can tell: yes. */
BARE static bool agent_is_locked(const struct world_tracer *all)
{
    static const char FUTEX[] = "202 ";
    char path[PATH_BYTES], now[8] = "", *end = append_number(append(path, "/proc/"), all->process);
    end = append(append_number(append(end, "/task/"), all->agent), "/syscall");
    *end = '\0';
    int fd = (int)CALL(SYS_open, path, O_RDONLY | O_CLOEXEC, 0, 0);
    long bytes = fd < 0 ? fd : CALL(SYS_read, fd, now, sizeof now, 0);
    if (fd >= 0)
        CALL(SYS_close, fd, 0, 0, 0);
    for (int i = 0; bytes > 4 && i < 4; i++)
        if (now[i] != FUTEX[i])
            return false;
    return true;
}

BARE static void hold_on(struct world_tracer *all)
{
    int64_t until_ns = now_ns() + HOLD_MOST_NS;
    wait_while(all, TRACER_HOLDS, HOLD_NS);
    for (int locked = 0; locked < LOCKED_TIMES && now_ns() < until_ns;) {
        if (atomic_load(&all->phase) != TRACER_HOLDS)
            return;
        locked = agent_is_locked(all) ? locked + 1 : 0;
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
    if (phase == TRACER_HOLDS)
        turn(all, TRACER_EXPIRED);
    else if (phase == TRACER_WORKS)
        turn(all, TRACER_FAILED);
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
            "xor %r10d, %r10d\n"
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
    return (pid_t)clone_bare(CLONE_VM | CLONE_FS | CLONE_UNTRACED, (void *)end, shared, work);
}

#endif
