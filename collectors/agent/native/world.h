/* Holds every thread of the trainer that may launch, each outside CUDA, so that CUPTI can be switched
 * in a process that tells nobody when it launches nothing (JAX, C++, several launching threads).
 *
 * A child that shares our memory traces the threads, as LeakSanitizer's StopTheWorld does. A thread is
 * held only where neither its next instruction nor a return address on its stack lies in CUDA, so
 * it is inside no call of CUDA's, and where it holds no lock of the C library's. A thread inside
 * goes on at once and is tried again microseconds later; CUDA's own threads are let run. When the
 * child ends, in whatever way, the kernel lets all threads go.
 *
 * Agent's thread only. Linux on x86-64; elsewhere, and where tracing is forbidden, WORLD_REFUSED. */
#ifndef BRRR_WORLD_H
#define BRRR_WORLD_H

#include <stdbool.h>

enum world {
    WORLD_HELD,    /* until world_resume, or for 3 s at the longest, or 300 ms if the agent waits for a lock */
    WORLD_BUSY,    /* some thread was inside CUDA at each try */
    WORLD_REFUSED, /* the kernel does not let us */
};
/* Threads outside are held for those inside for at most `wait_ms` at a time. */
enum world world_hold(int patience_ms, int wait_ms);

/* All were let go before we said so: the child's time was over, or somebody killed it. */
bool world_lost(void);

/* Lets all go. False: they had been let go before, because this took too long. */
bool world_resume(void);

void world_forked(void);

#endif
