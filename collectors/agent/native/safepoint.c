#include <dlfcn.h>
#include <sys/syscall.h>

#include "trace.h"

#define CALL_NS (5 * NS_PER_MS)       /* the trainer waits so long for the agent to come */
#define HELD_NS (300 * NS_PER_MS)     /* and so long, and so many steps, for it to be done: CUPTI may hang, */
#define HELD_STEPS 3                  /* and it waits for all that is queued on the device */
#define HELD_MOST_NS (3 * NS_PER_S)
#define STEP_WAIT_NS (300 * NS_PER_MS) /* a step is waited for so long before the interpreter is asked */
#define LOOK_EVERY_NS (20 * NS_PER_MS)
#define PATIENCE_NS (10 * NS_PER_S)
#define CAPTURE_NS (60 * NS_PER_S) /* one that failed may never be heard to end */
#define WORLD_LAST_NS (1500 * NS_PER_MS) /* so long somebody may come by himself */
#define WORLD_MS 300                     /* a try */
#define WORLD_PAUSE_NS (50 * NS_PER_MS)  /* after one in vain, twice as long after each further one */
#define WORLD_PAUSE_MOST_NS (20 * NS_PER_S)
#define WORLD_WAIT_MS 16 /* some threads are held for others so long, twice as long after each in vain */
#define WORLD_WAIT_MOST_MS 128
#define NOBODY UINT64_MAX

enum { APART, WAITING, HELD };

static struct condition news = NEWS_INITIALIZER;
static int phase;
static _Atomic uint64_t asked_at = NOBODY; /* a step's number; 0: at once */
static _Atomic pthread_t stepper;
static atomic_bool stepped, elsewhere, called;
static _Atomic int64_t capture_ns; /* when it began, monotonic; 0: none */
static atomic_int callers;
static int64_t asked_ns, came_ns;
static _Atomic int64_t stepped_ns; /* when the last step ended, monotonic; 0: none did */
static _Atomic int64_t step_ns;    /* the longest of the last steps */
static _Atomic int64_t longest_ns; /* that the trainer was held, since it was last asked */
struct held_world held_world;
static int64_t world_next_ns, world_since_ns;
static uint32_t world_misses; /* in a row */

static bool on_main(void) { return syscall(SYS_gettid) == getpid(); }

/* With the lock held, while the phase lasts; false once the time is over. */
static bool wait_while(int that, int64_t until_ns)
{
    while (phase == that)
        if (!condition_wait(&news, until_ns))
            return phase != that;
    return true;
}

/* By the trainer when it goes on, and before that by the agent: on a busy host the one that was held
 * gets a processor only after the figure has been sent. */
static void book(int64_t since_ns)
{
    int64_t held_ns = mono_ns() - since_ns, longest = atomic_load(&longest_ns);
    while (held_ns > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, held_ns))
        continue;
}

static int64_t held_most(void)
{
    int64_t most_ns = HELD_NS + HELD_STEPS * atomic_load(&step_ns);
    return most_ns < HELD_MOST_NS ? most_ns : HELD_MOST_NS;
}

/* The trainer's thread, in a place where it launches nothing. */
static void come(uint64_t step)
{
    int64_t now_ns = mono_ns(), captures_ns = atomic_load(&capture_ns);
    if (step < atomic_load(&asked_at) || (captures_ns && now_ns - captures_ns < CAPTURE_NS))
        return;
    condition_hold(&news);
    if (phase == APART && step >= atomic_load(&asked_at)) {
        phase = WAITING;
        came_ns = now_ns;
        agent_wake();
        if (wait_while(WAITING, now_ns + CALL_NS))
            wait_while(HELD, now_ns + held_most());
        else
            atomic_store(&asked_at, NOBODY); /* once is enough until it asks again */
        phase = APART;
        book(now_ns);
    }
    pthread_mutex_unlock(&news.lock);
}

int64_t safepoint_longest_ns(void) { return atomic_exchange(&longest_ns, 0); }

/* Without holds, which come after it: the next step is timed from their end. */
static void time_step(void)
{
    int64_t now_ns = mono_ns(), before_ns = atomic_exchange(&stepped_ns, now_ns);
    int64_t faded_ns = atomic_load(&step_ns) / 8 * 7, took_ns = before_ns ? now_ns - before_ns : 0;
    atomic_store(&step_ns, took_ns > faded_ns ? took_ns : faded_ns);
}

void safepoint_step(uint64_t count)
{
    time_step();
    pthread_t here = pthread_self();
    if (!atomic_load_explicit(&stepped, memory_order_relaxed) ||
        !pthread_equal(here, atomic_load_explicit(&stepper, memory_order_relaxed))) {
        atomic_store(&stepper, here);
        atomic_store(&elsewhere, !on_main());
        atomic_store(&stepped, true);
    }
    if (count >= atomic_load_explicit(&asked_at, memory_order_relaxed)) {
        come(count);
        atomic_store(&stepped_ns, mono_ns());
    }
}

static int by_interpreter(void *unused)
{
    (void)unused;
    atomic_store(&called, false);
    come(0);
    return 0;
}

/* Only the main thread takes such calls: of no use where another one trains. Needs no GIL; an
 * interpreter that is gone, or never was, takes none. */
static void call_interpreter(void)
{
    typedef int (*add_fn)(int (*)(void *), void *);
    typedef int (*there_fn)(void);
    if (atomic_load(&elsewhere) || agent_exiting() || atomic_exchange(&called, true))
        return;
    add_fn add = (add_fn)dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
    there_fn there = (there_fn)dlsym(RTLD_DEFAULT, "Py_IsInitialized");
    if (add == NULL || there == NULL || !there() || add(by_interpreter, NULL) != 0)
        atomic_store(&called, false);
}

static bool met(void)
{
    if (atomic_load(&callers) != 0)
        return true;
    condition_hold(&news);
    bool here = phase != APART;
    if (phase == WAITING) {
        phase = HELD;
        pthread_cond_broadcast(&news.told);
    }
    pthread_mutex_unlock(&news.lock);
    return here;
}

static int64_t doubled(int64_t first, int64_t most, uint32_t times)
{
    return times < 16 && first << times < most ? first << times : most;
}

static enum meet ask_world(int64_t now_ns)
{
    if (held_world.held)
        return MEET_HERE;
    if (now_ns < world_next_ns)
        return now_ns - asked_ns < PATIENCE_NS ? MEET_LATER : MEET_NEVER;
    enum world world = world_hold(WORLD_MS, (int)doubled(WORLD_WAIT_MS, WORLD_WAIT_MOST_MS, world_misses));
    world_since_ns = mono_ns();
    held_world.held = world == WORLD_HELD;
    if (!held_world.held)
        world_next_ns = world_since_ns + doubled(WORLD_PAUSE_NS, WORLD_PAUSE_MOST_NS, world_misses);
    world_misses = held_world.held ? 0 : world_misses + 1;
    held_world.says = world == WORLD_HELD   ? NULL
                 : world == WORLD_BUSY ? "some thread of it has been inside CUDA at every try for 10 s"
                                       : "the kernel does not let its threads be held (ptrace is forbidden "
                                         "here, a debugger holds them, or this is not x86-64)";
    if (held_world.held)
        return MEET_HERE;
    return world == WORLD_BUSY && now_ns - asked_ns < PATIENCE_NS ? MEET_LATER : MEET_NEVER;
}

static void leave_world(void)
{
    if (!held_world.held)
        return;
    held_world.held = false;
    held_world.failed |= !world_resume();
    book(world_since_ns);
}

static int64_t step_wait(void) { return atomic_load(&stepped) ? STEP_WAIT_NS : 0; }

enum meet safepoint_ask(int64_t now_ns)
{
    if (asked_ns == 0)
        asked_ns = now_ns;
    if (held_world.when == WORLD_ONLY || held_world.held)
        return ask_world(now_ns);
    if (met())
        return MEET_HERE;
    atomic_store(&asked_at, 0);
    if (now_ns - asked_ns >= step_wait())
        call_interpreter();
    if (held_world.when == WORLD_LAST && now_ns - asked_ns >= WORLD_LAST_NS)
        return ask_world(now_ns);
    return now_ns - asked_ns < PATIENCE_NS ? MEET_LATER : MEET_NEVER;
}

int64_t safepoint_due(int64_t now_ns)
{
    if (held_world.when == WORLD_ONLY)
        return world_next_ns > now_ns ? world_next_ns : now_ns;
    int64_t first_ns = asked_ns + step_wait();
    return first_ns > now_ns ? first_ns : now_ns + LOOK_EVERY_NS;
}

void safepoint_arm(uint64_t step) { atomic_store(&asked_at, step); }

void safepoint_over(void)
{
    asked_ns = world_next_ns = 0;
    leave_world();
    atomic_store(&asked_at, NOBODY);
    condition_hold(&news);
    if (phase == HELD) {
        phase = APART;
        book(came_ns);
        pthread_cond_broadcast(&news.told);
    }
    pthread_mutex_unlock(&news.lock);
}

enum meet safepoint_within(int ms)
{
    int64_t until_ns = mono_ns() + ms * NS_PER_MS;
    enum meet meet;
    while ((meet = safepoint_ask(mono_ns())) != MEET_HERE && mono_ns() < until_ns && !agent_exiting())
        nanosleep(&(struct timespec){0, NS_PER_MS / 10}, NULL);
    return meet;
}

bool safepoint_caller(void)
{
    bool trains = on_main() ||
                  (atomic_load(&stepped) && pthread_equal(pthread_self(), atomic_load(&stepper)));
    atomic_fetch_add(&callers, trains);
    return trains;
}

void safepoint_caller_left(void) { atomic_fetch_sub(&callers, 1); }

/* No place to meet meanwhile. */
void brrr_capture(int begins) { atomic_store(&capture_ns, begins ? mono_ns() : 0); }

void safepoint_forked(void)
{
    condition_forked(&news);
    world_forked();
    held_world.held = false;
    phase = APART;
    asked_ns = 0;
    atomic_store(&longest_ns, 0);
    atomic_store(&stepped_ns, 0);
    atomic_store(&step_ns, 0);
    atomic_store(&asked_at, NOBODY);
    atomic_store(&stepped, false);
    atomic_store(&elsewhere, false);
    atomic_store(&capture_ns, 0);
    atomic_store(&called, false);
    atomic_store(&callers, 0);
}
