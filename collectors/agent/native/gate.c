#include "gate.h"

#include <stdio.h>
#include <string.h>

#include "agent.h"
#include "brrrtop_agent.h"
#include "clock.h"
#include "news.h"

enum { IDLE, STARTING, RUNNING };

static struct news news = NEWS_INITIALIZER;
static int phase, asked, events;
static uint64_t tickets, answered;
static char asker[128];

enum gate_entry gate_enter(void)
{
    news_hold(&news);
    enum gate_entry entry = phase == IDLE ? GATE_MINE : phase == RUNNING ? GATE_RUNNING : GATE_BUSY;
    if (phase == RUNNING && asked & ASK_STOP)
        entry = GATE_BUSY;
    if (entry == GATE_MINE) {
        phase = STARTING;
        asked = 0;
        events = 0;
    }
    news_release(&news);
    return entry;
}

void gate_started(void)
{
    news_hold(&news);
    phase = RUNNING;
    news_release(&news);
}

void gate_ended(void)
{
    news_hold(&news);
    if (phase == RUNNING)
        events |= BRRR_EV_STOP | BRRR_EV_ENDED;
    phase = IDLE;
    answered = tickets;
    news_tell(&news);
    news_release(&news);
}

bool gate_ask(int what, const char *who, int ms)
{
    int64_t until_ns = mono_ns() + ms * NS_PER_MS;
    news_hold(&news);
    if (phase != RUNNING) {
        news_release(&news);
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
        if (!news_wait(&news, until_ns))
            break;
    bool done = what == ASK_STOP ? phase != RUNNING : answered >= ticket;
    news_release(&news);
    return done;
}

int gate_asked(char *who, int room, uint64_t *ticket)
{
    news_hold(&news);
    int what = asked;
    asked &= ASK_STOP;
    *ticket = tickets;
    snprintf(who, (size_t)room, "%s", asker);
    news_release(&news);
    return what;
}

void gate_answer(uint64_t ticket)
{
    news_hold(&news);
    answered = ticket;
    news_tell(&news);
    news_release(&news);
}

void gate_raise(int bits)
{
    news_hold(&news);
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
    news_tell(&news);
    news_release(&news);
}

int gate_wait(int timeout_ms)
{
    int64_t until_ns = mono_ns() + timeout_ms * NS_PER_MS;
    news_hold(&news);
    while (events == 0)
        if (!news_wait(&news, until_ns))
            break;
    int bits = events;
    events = 0;
    news_release(&news);
    return bits;
}

void gate_forked(void)
{
    news_forked(&news);
    phase = IDLE;
    asked = events = 0;
    tickets = answered = 0;
}
