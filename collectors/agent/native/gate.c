#include "gate.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"
#include "brrrtop_agent.h"
#include "clock.h"

enum { IDLE, STARTING, RUNNING };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int phase, asked, events;
static uint64_t tickets, answered;
static char asker[128];

static void make_condition(void)
{
    pthread_condattr_t kind;
    pthread_condattr_init(&kind);
    pthread_condattr_setclock(&kind, CLOCK_MONOTONIC);
    pthread_cond_init(&news, &kind);
    pthread_condattr_destroy(&kind);
}

static void hold(void)
{
    pthread_once(&once, make_condition);
    pthread_mutex_lock(&lock);
}

static void release(void) { pthread_mutex_unlock(&lock); }

/* False once the time is over. */
static bool wait_until(int64_t until_ns)
{
    struct timespec until = {until_ns / NS_PER_S, until_ns % NS_PER_S};
    return pthread_cond_timedwait(&news, &lock, &until) == 0;
}

enum gate_entry gate_enter(void)
{
    hold();
    enum gate_entry entry = phase == IDLE ? GATE_MINE : phase == RUNNING ? GATE_RUNNING : GATE_BUSY;
    if (phase == RUNNING && asked & ASK_STOP)
        entry = GATE_BUSY;
    if (entry == GATE_MINE) {
        phase = STARTING;
        asked = 0;
        events = 0;
    }
    release();
    return entry;
}

void gate_started(void)
{
    hold();
    phase = RUNNING;
    release();
}

void gate_ended(void)
{
    hold();
    if (phase == RUNNING)
        events |= BRRR_EV_STOP | BRRR_EV_ENDED;
    phase = IDLE;
    answered = tickets;
    pthread_cond_broadcast(&news);
    release();
}

bool gate_ask(int what, const char *who, int ms)
{
    int64_t until_ns = mono_ns() + ms * NS_PER_MS;
    hold();
    if (phase != RUNNING) {
        release();
        return true;
    }
    asked |= what;
    if (what == ASK_YIELD)
        asked &= ~ASK_RESUME;
    else if (what == ASK_RESUME)
        asked &= ~ASK_YIELD;
    if (who != NULL)
        snprintf(asker, sizeof asker, "%s", who);
    uint64_t ticket = ++tickets;
    agent_wake();
    /* A stop is only over when the thread is. */
    while (what == ASK_STOP ? phase == RUNNING : answered < ticket)
        if (!wait_until(until_ns))
            break;
    bool done = what == ASK_STOP ? phase != RUNNING : answered >= ticket;
    release();
    return done;
}

int gate_asked(char *who, int room, uint64_t *ticket)
{
    hold();
    int what = asked;
    asked &= ASK_STOP;
    *ticket = tickets;
    snprintf(who, (size_t)room, "%s", asker);
    release();
    return what;
}

void gate_answer(uint64_t ticket)
{
    hold();
    answered = ticket;
    pthread_cond_broadcast(&news);
    release();
}

void gate_raise(int bits)
{
    hold();
    if (bits & BRRR_EV_STACKS_ON)
        events &= ~BRRR_EV_STACKS_OFF;
    if (bits & BRRR_EV_STACKS_OFF)
        events &= ~BRRR_EV_STACKS_ON;
    /* Whoever comes back in time makes the leaving before it void, and the reverse. */
    if (bits & BRRR_EV_MONITOR)
        events &= ~(BRRR_EV_MONITOR_GONE | BRRR_EV_STOP);
    if (bits & BRRR_EV_MONITOR_GONE)
        events &= ~BRRR_EV_MONITOR;
    events |= bits;
    pthread_cond_broadcast(&news);
    release();
}

int gate_wait(int timeout_ms)
{
    int64_t until_ns = mono_ns() + timeout_ms * NS_PER_MS;
    hold();
    while (events == 0)
        if (!wait_until(until_ns))
            break;
    int bits = events;
    events = 0;
    release();
    return bits;
}

void gate_forked(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_once_t never = PTHREAD_ONCE_INIT;
    lock = fresh;
    once = never;
    phase = IDLE;
    asked = events = 0;
    tickets = answered = 0;
}
