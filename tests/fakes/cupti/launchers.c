/* Threads of a program that is not Python: each launches, computes and sometimes waits, and its result
 * tells whether it was disturbed. Built as a library for a Python child, and with -DPROGRAM alone. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST 32

typedef void (*api_fn)(int us, int how);
struct launcher {
    pthread_t thread;
    api_fn api;
    int inside_us, outside_us, number;
    int row, wait_us; /* calls one after the other, and the wait after them; 0: no such */
    uint64_t state, calls;
    double value;
};

static struct launcher launchers[MOST];
static int count;
static atomic_bool over;
static atomic_int cut_short; /* waits that ended in EINTR */

static int64_t now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* The same for the same number of calls, however long each took. */
static void advance(struct launcher *one)
{
    for (int i = 0; i < 64; i++) {
        one->state ^= one->state << 13;
        one->state ^= one->state >> 7;
        one->state ^= one->state << 17;
        one->value = one->value * 0.999 + (double)(one->state >> 40) * 1e-6;
    }
    one->calls++;
}

static void *launch(void *given)
{
    struct launcher *one = given;
    while (!atomic_load(&over)) {
        one->api(one->inside_us, one->number % 3);
        if (one->number % 2)
            nanosleep(&(struct timespec){0, one->outside_us * 1000L}, NULL);
        for (int64_t until = now_us() + one->outside_us; one->number % 2 == 0 && now_us() < until;)
            continue;
        advance(one);
    }
    return NULL;
}

/* As a C++ program that does little else: outside for less than a microsecond at a time, and never at
 * a system call of its own. */
static void *launch_rows(void *given)
{
    struct launcher *one = given;
    while (!atomic_load(&over)) {
        for (int i = 0; i < one->row; i++) {
            one->api(one->inside_us, 0);
            advance(one);
        }
        one->api(one->wait_us, 0);
    }
    return NULL;
}

static void *wait_for_nothing(void *given)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event;
    (void)given;
    while (!atomic_load(&over))
        if (epoll_wait(epoll, &event, 1, 20) < 0 && errno == EINTR)
            atomic_fetch_add(&cut_short, 1);
    close(epoll);
    return NULL;
}

static pthread_t waiter, signaller;
static bool signalled;

/* Long enough that it is often met in a thread that it interrupted. */
static void handle(int number)
{
    (void)number;
    for (int64_t until = now_us() + 200; now_us() < until;)
        continue;
}

static void *signal_them(void *given)
{
    (void)given;
    while (!atomic_load(&over)) {
        for (int i = 0; i < count; i++)
            pthread_kill(launchers[i].thread, SIGALRM);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return NULL;
}

/* Signals are for the main thread: while that one is held, the kernel would give them to another, whose
 * wait ends in EINTR then, as it would without anybody who watches. */
static void begin(struct launcher like, api_fn api, int threads, int longest_us, void *(*body)(void *))
{
    sigset_t all, before;
    sigfillset(&all);
    if (signalled)
        sigdelset(&all, SIGALRM);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&over, false);
    count = threads < MOST ? threads : MOST;
    for (int i = 0; i < count; i++) {
        struct launcher *one = &launchers[i];
        *one = like;
        one->api = api;
        one->number = i;
        one->state = 88172645463325252u + i;
        if (i == count - 1)
            one->inside_us = longest_us;
        pthread_create(&one->thread, NULL, body, one);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    pthread_create(&waiter, NULL, wait_for_nothing, NULL);
    if (signalled)
        pthread_create(&signaller, NULL, signal_them, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* `threads` that launch, the last one inside for `longest_us` each time, and one that only waits. */
EXPORT void launchers_begin(api_fn api, int threads, int inside_us, int outside_us, int longest_us)
{
    struct launcher like = {.inside_us = inside_us, .outside_us = outside_us};
    begin(like, api, threads, longest_us, launch);
}

/* The same, each interrupted by a signal a millisecond. */
EXPORT void launchers_begin_signalled(api_fn api, int threads, int inside_us, int outside_us)
{
    sigaction(SIGALRM, &(struct sigaction){.sa_handler = handle, .sa_flags = SA_RESTART}, NULL);
    signalled = true;
    launchers_begin(api, threads, inside_us, outside_us, inside_us);
}

/* `threads` that make `row` calls of `inside_us` each, then one in which they wait for `wait_us`, and so on. */
EXPORT void launchers_begin_rows(api_fn api, int threads, int row, int inside_us, int wait_us)
{
    struct launcher like = {.inside_us = inside_us, .row = row, .wait_us = wait_us};
    begin(like, api, threads, inside_us, launch_rows);
}

/* Ends them. How many came to another result than the same calls give at rest, and waits cut short. */
EXPORT int launchers_end(void)
{
    int wrong = atomic_exchange(&cut_short, 0);
    atomic_store(&over, true);
    pthread_join(waiter, NULL);
    if (signalled)
        pthread_join(signaller, NULL);
    signalled = false;
    for (int i = 0; i < count; i++) {
        struct launcher again = {.state = 88172645463325252u + i};
        pthread_join(launchers[i].thread, NULL);
        while (again.calls < launchers[i].calls)
            advance(&again);
        wrong += again.state != launchers[i].state || memcmp(&again.value, &launchers[i].value, sizeof again.value);
    }
    return wrong;
}

EXPORT uint64_t launchers_calls(void)
{
    uint64_t calls = 0;
    for (int i = 0; i < count; i++)
        calls += launchers[i].calls;
    return calls;
}

#ifdef PROGRAM
static atomic_int asked;

static void ask(int number)
{
    atomic_store(&asked, number == SIGTERM ? 50 : 1);
}

/* program LIBCUDA LIBCUPTI SECONDS: launches so long, or until SIGINT, or for a second more once SIGTERM
 * came, in which whoever watches it leaves. Prints what went wrong, and calls of CUPTI's beside a launch. */
int main(int argc, char **argv)
{
    void *cuda = argc == 4 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *cupti = cuda ? dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL) : NULL;
    int (*init)(unsigned) = NULL, (*beside)(void) = NULL;
    api_fn api = NULL;
    if (cupti == NULL)
        return fprintf(stderr, "%s\n", dlerror()), 2;
    *(void **)&init = dlsym(cuda, "cuInit");
    *(void **)&api = dlsym(cupti, "fake_api");
    *(void **)&beside = dlsym(cupti, "fake_beside");
    if (init(0) != 0)
        return 3;
    signal(SIGTERM, ask);
    signal(SIGINT, ask);
    launchers_begin(api, 2, 20, 200, 20);
    for (int left = atoi(argv[3]) * 50; left > 0; left--) {
        usleep(20000);
        int most = atomic_exchange(&asked, 0);
        if (most != 0 && left > most)
            left = most;
    }
    uint64_t calls = launchers_calls();
    int wrong = launchers_end();
    printf("calls %llu wrong %d beside %d\n", (unsigned long long)calls, wrong, beside());
    return wrong != 0;
}
#endif
