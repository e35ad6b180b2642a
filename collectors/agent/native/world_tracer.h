/* The child that traces the trainer's threads for world.c, in the trainer's memory. */
#pragma once

#include <sys/types.h>

#include "base.h"

#define CODE_RANGES 64

struct code_ranges {
    uint64_t least, most; /* around all of them */
    uint32_t count;
    struct {
        uint64_t start, end;
    } of[CODE_RANGES];
};

enum tracer_phase {
    TRACER_STARTS,   /* until it may trace us */
    TRACER_WORKS,
    TRACER_HOLDS,    /* by the child */
    TRACER_FAILED,   /* by the child; `why` says it */
    TRACER_EXPIRED,  /* by the child: all were let go before we said so */
    TRACER_RELEASES, /* by us */
};
enum tracer_why { TRACER_BUSY, TRACER_NOT_PERMITTED };

#define TRACED_THREADS 4096

struct traced_thread {
    int tid;
    uint8_t state;
    bool asked;    /* to stop, and does not stand yet */
    bool late;     /* since an earlier round */
    int64_t in_ns; /* inside ever since, at each try; 0: outside at the last */
    int64_t due_ns;           /* not tried before */
    int64_t gap_ns;           /* from the last try to that */
    uint64_t at;              /* its registers at the last try, */
    int64_t still_ns;         /* and since when */
    uint64_t call;            /* where the outermost of CUDA's frames returned to then, */
    int64_t call_ns;          /* and since when */
};

#define LIMITED_WAITS 64

/* A thread's wait with a time limit that was begun again; outlives a hold. */
struct limited_wait {
    int tid;
    uint64_t given;   /* what its register has now */
    int64_t until_ns;
    int64_t left[2];  /* a timespec */
};

struct world_tracer {
    atomic_int alive; /* a futex; the kernel makes it 0 when the child ends, in whatever way */
    atomic_int phase; /* a futex */
    int why;
    int process, agent;
    int64_t patience_ns, wait_ns;
    struct code_ranges cuda;   /* the driver, the runtime, CUPTI */
    struct code_ranges system; /* C library, linker, allocators, this library: may hold locks that we need */
    uint32_t random;
    uint32_t count;
    struct traced_thread threads[TRACED_THREADS]; /* from here on kept from hold to hold */
    struct limited_wait limited[LIMITED_WAITS];
    uint64_t words[4096]; /* of a stack */
    char entries[8192];   /* of a folder */
};

/* Begins the child on a stack of its own; negative: the kernel refuses. */
pid_t world_tracer_clone(void *stack_end, struct world_tracer *shared);
