/* One thread of the trainer, as the child that traces it (world_tracer.h) sees it. */
#ifndef BRRR_WORLD_THREAD_H
#define BRRR_WORLD_THREAD_H

#include "world_tracer.h"

/* ASIDE, OWNED: seized, and let run; the first will be tried again. */
enum { RUNS, HELD, ASIDE, OWNED, GONE };
/* OUTSIDE: of CUDA, and with no lock of the C library's. CUDAS_OWN: a thread that CUDA began. LOST: it is gone. */
enum place { OUTSIDE, INSIDE, CUDAS_OWN, LOST };

/* Whether an interrupted thread stands by then. Signals for it go on to it first. */
bool world_thread_stands(struct traced_thread *thread, int64_t until_ns);

/* Of one that stands. Says too when it is to be tried again. */
enum place world_thread_place(struct world_tracer *all, struct traced_thread *thread);

#endif
