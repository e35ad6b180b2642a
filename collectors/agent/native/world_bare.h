/* All that a child in the trainer's memory (world_tracer.h) may call: the kernel. */
#ifndef BRRR_WORLD_BARE_H
#define BRRR_WORLD_BARE_H

#include <linux/ptrace.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#define MS 1000000LL
#define SPIN_NS 20000

/* No sanitizer, no library: this runs in a process of its own on our memory, with our thread's errno. */
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

#endif
