#include "cupti.h"

#include <stdatomic.h>
#include <stdio.h>

#include "clock.h"

static atomic_bool closed, inside;
static _Atomic uint64_t faults;
static const char *last_call = "";
static int last_code;

bool cupti_enter(void)
{
    atomic_store(&inside, true);
    if (!atomic_load(&closed))
        return true;
    atomic_store(&inside, false);
    return false;
}

int cupti_leave(int code, const char *call)
{
    atomic_store(&inside, false);
    if (code != CUPTI_OK) {
        atomic_fetch_add(&faults, 1);
        last_call = call;
        last_code = code;
    }
    return code;
}

void cupti_close(int ms)
{
    atomic_store(&closed, true);
    int64_t until = mono_ns() + ms * NS_PER_MS;
    while (atomic_load(&inside) && mono_ns() < until)
        nanosleep(&(struct timespec){0, NS_PER_MS / 4}, NULL);
}

uint64_t cupti_faults(void) { return atomic_load(&faults); }

void cupti_last_fault(const struct cupti *cupti, char *out, size_t room)
{
    const char *text = NULL;
    if (cupti->get_result_string != NULL && cupti_enter()) {
        if (cupti->get_result_string(last_code, &text) != CUPTI_OK)
            text = NULL;
        atomic_store(&inside, false);
    }
    snprintf(out, room, "%s answered %d%s%s", last_call, last_code, text ? " " : "", text ? text : "");
}

void cupti_forked(void)
{
    atomic_store(&closed, false);
    atomic_store(&inside, false);
}
