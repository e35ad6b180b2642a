#include "trace.h"

enum { IDLE, STARTING, RUNNING };

static struct condition news = NEWS_INITIALIZER;
static int phase, asked, events;
static uint64_t tickets, answered;
static atomic_bool awaited; /* somebody takes events */
static char asker[128];

enum requests_entry requests_enter(void)
{
    condition_hold(&news);
    enum requests_entry entry = phase == IDLE ? GATE_MINE : phase == RUNNING ? GATE_RUNNING : GATE_BUSY;
    if (phase == RUNNING && asked & ASK_STOP)
        entry = GATE_BUSY;
    if (entry == GATE_MINE) {
        phase = STARTING;
        asked = 0;
        events = 0;
    }
    pthread_mutex_unlock(&news.lock);
    return entry;
}

void requests_started(void)
{
    condition_hold(&news);
    phase = RUNNING;
    pthread_mutex_unlock(&news.lock);
}

void requests_ended(void)
{
    condition_hold(&news);
    if (phase == RUNNING)
        events |= BRRR_EV_STOP | BRRR_EV_ENDED;
    phase = IDLE;
    answered = tickets;
    pthread_cond_broadcast(&news.told);
    pthread_mutex_unlock(&news.lock);
}

bool requests_ask(int what, const char *who, int ms)
{
    int64_t until_ns = mono_ns() + ms * NS_PER_MS;
    condition_hold(&news);
    if (phase != RUNNING) {
        pthread_mutex_unlock(&news.lock);
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
        if (!condition_wait(&news, until_ns))
            break;
    bool done = what == ASK_STOP ? phase != RUNNING : answered >= ticket;
    pthread_mutex_unlock(&news.lock);
    return done;
}

int requests_asked(char *who, int room, uint64_t *ticket)
{
    condition_hold(&news);
    int what = asked;
    asked &= ASK_STOP;
    *ticket = tickets;
    snprintf(who, (size_t)room, "%s", asker);
    pthread_mutex_unlock(&news.lock);
    return what;
}

void requests_answer(uint64_t ticket)
{
    condition_hold(&news);
    answered = ticket;
    pthread_cond_broadcast(&news.told);
    pthread_mutex_unlock(&news.lock);
}

void requests_raise(int bits)
{
    condition_hold(&news);
    /* Whoever comes back in time makes the leaving before it void, and the reverse. */
    if (bits & BRRR_EV_MONITOR)
        events &= ~(BRRR_EV_MONITOR_GONE | BRRR_EV_STOP);
    if (bits & BRRR_EV_MONITOR_GONE)
        events &= ~BRRR_EV_MONITOR;
    events |= bits;
    pthread_cond_broadcast(&news.told);
    pthread_mutex_unlock(&news.lock);
}

bool requests_awaited(void) { return atomic_load(&awaited); }

int brrr_wait(int timeout_ms)
{
    int64_t until_ns = mono_ns() + timeout_ms * NS_PER_MS;
    condition_hold(&news);
    atomic_store(&awaited, true);
    while (events == 0)
        if (!condition_wait(&news, until_ns))
            break;
    int bits = events;
    events = 0;
    pthread_mutex_unlock(&news.lock);
    return bits;
}

void requests_forked(void)
{
    condition_forked(&news);
    phase = IDLE;
    asked = events = 0;
    atomic_store(&awaited, false);
    tickets = answered = 0;
}
