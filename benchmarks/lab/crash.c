/* Preloaded into a trainer: says where it died, native frames of the thread that got the signal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static char stack[1 << 17];

static void put(const char *text)
{
    ssize_t ignored = write(2, text, strlen(text));
    (void)ignored;
}

static void number(unsigned long long value)
{
    char text[24];
    int at = sizeof text - 1;
    text[at] = 0;
    do
        text[--at] = "0123456789abcdef"[value & 15];
    while (value >>= 4);
    put(text + at);
}

static void died(int sig, siginfo_t *info, void *context)
{
    void *frames[64];
    char name[17] = "";
    prctl(PR_GET_NAME, name);
    put("\n=== crash: signal ");
    number((unsigned)sig);
    put(" code ");
    number((unsigned)info->si_code);
    put(" address ");
    number((unsigned long long)info->si_addr);
    put(" thread ");
    put(name);
    put(syscall(SYS_gettid) == getpid() ? " (main)" : "");
#ifdef __x86_64__
    put(" ip ");
    number((unsigned long long)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]);
#else
    (void)context;
#endif
    put("\n");
    backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
    put("=== end of crash\n");
    signal(sig, SIG_DFL);
    raise(sig);
}

/* For a look at a thread that hangs: tgkill it with SIGPROF. */
static void looked_at(int sig, siginfo_t *info, void *context)
{
    void *frames[64];
    char name[17] = "";
    (void)sig, (void)info, (void)context;
    prctl(PR_GET_NAME, name);
    put("\n=== look: thread ");
    put(name);
    put("\n");
    backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
}

/* A fault in a thread that blocks its signal would end the process without a word. */
int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    static int (*next)(int, const sigset_t *, sigset_t *);
    if (next == NULL)
        next = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "pthread_sigmask");
    if (set == NULL || how == SIG_UNBLOCK)
        return next(how, set, old);
    sigset_t open = *set;
    sigdelset(&open, SIGSEGV);
    sigdelset(&open, SIGBUS);
    sigdelset(&open, SIGABRT);
    sigdelset(&open, SIGPROF);
    return next(how, &open, old);
}

__attribute__((constructor)) static void begin(void)
{
    void *warm[2];
    backtrace(warm, 2); /* loads what it needs outside of a handler */
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&other, NULL);
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    action.sa_sigaction = died;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    action = (struct sigaction){.sa_flags = SA_SIGINFO | SA_RESTART};
    action.sa_sigaction = looked_at;
    sigaction(SIGPROF, &action, NULL);
}
