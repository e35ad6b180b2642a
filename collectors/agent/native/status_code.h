/* Where kernel tracing stands, for programs: the `code` beside a status frame's sentence. The monitor
 * decides by it alone (`StatusCode` in brrrtop/protocol/status.py), so no value changes its meaning. */
#ifndef BRRR_STATUS_CODE_H
#define BRRR_STATUS_CODE_H

#define STATUS_CODES(X)                                                                            \
    X(CODE_READY, "ready")                                                                         \
    X(CODE_TRACING, "tracing")                                                                     \
    X(CODE_GPU_UNTOUCHED, "gpu-untouched")     /* no CUDA context yet */                           \
    X(CODE_NO_CALLS, "no-calls")               /* ready, without launches: an old CUPTI */         \
    X(CODE_GRAPHS_UNKNOWN, "graphs-unknown")   /* ready, and held back until somebody knows */     \
    X(CODE_NO_PAUSE, "no-pause")               /* ready, and never outside CUDA */                 \
    X(CODE_NO_STEP, "no-step")                 /* ready, and no step ends */                       \
    X(CODE_UNREADABLE, "unreadable")           /* the process cannot be looked through */          \
    X(CODE_NO_CUPTI, "no-cupti")                                                                   \
    X(CODE_TWO_CUPTIS, "two-cuptis")                                                               \
    X(CODE_CUPTI_UNUSABLE, "cupti-unusable")   /* it does not load, or is of another layout */     \
    X(CODE_OTHER_TOOL, "other-tool")           /* nsys, ncu, compute-sanitizer */                  \
    X(CODE_PROFILER_RECORDS, "profiler-records") /* torch's own has its turn */                    \
    X(CODE_CUPTI_TAKEN, "cupti-taken")         /* another profiler has subscribed */               \
    X(CODE_NO_RECORDS, "no-records")           /* another profiler has the callbacks */            \
    X(CODE_RECORDS_HELD, "records-held")       /* CUPTI has them, and gives none back */           \
    X(CODE_NOT_PERMITTED, "not-permitted")                                                         \
    X(CODE_CUPTI_FAILED, "cupti-failed")                                                           \
    X(CODE_GRAPH_TIMES, "graph-times")         /* CUPTI loses times inside CUDA graphs */          \
    X(CODE_CUPTI_SLOW, "cupti-slow")           /* threads cannot be held for so long */

#define STATUS_CODE_ENUM(name, text) name,
enum status_code { STATUS_CODES(STATUS_CODE_ENUM) };
#undef STATUS_CODE_ENUM

#endif
