// Hardware counters of every kernel this process launches, by CUPTI's range profiler: one range a kernel.
//
// The caller replays its work: ranges_start, one step, ranges_stop, until ranges_stop says that all
// passes are in; then ranges_decode and a ranges_read a kernel. A function returns 0 or the CUptiResult
// of the call that ranges_why names. One profiler a process, from one thread.
#include <cuda.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_result.h>
#include <cupti_target.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {
CUpti_Profiler_Host_Object *host;
CUpti_RangeProfiler_Object *target;
std::vector<uint8_t> available, config, counters;
const char **metrics;
size_t metric_count;
char why[256];

#define PARAMS(type, name) \
    type name{};           \
    name.structSize = type##_STRUCT_SIZE

#define TRY(call)                                                                             \
    do {                                                                                      \
        if (int code = static_cast<int>(call)) {                                              \
            const char *said = nullptr;                                                       \
            cuptiGetResultString(static_cast<CUptiResult>(code), &said);                      \
            std::snprintf(why, sizeof why, "%s: %d %s", #call, code, said ? said : "");       \
            return code;                                                                      \
        }                                                                                     \
    } while (0)

int make_host(CUcontext context, CUdevice device) {
    PARAMS(CUpti_Device_GetChipName_Params, chip);
    chip.deviceIndex = static_cast<size_t>(device);
    TRY(cuptiDeviceGetChipName(&chip));
    PARAMS(CUpti_Profiler_GetCounterAvailability_Params, has);
    has.ctx = context;
    TRY(cuptiProfilerGetCounterAvailability(&has));
    available.resize(has.counterAvailabilityImageSize);
    has.pCounterAvailabilityImage = available.data();
    TRY(cuptiProfilerGetCounterAvailability(&has));
    PARAMS(CUpti_Profiler_Host_Initialize_Params, made);
    made.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    made.pChipName = chip.pChipName;
    made.pCounterAvailabilityImage = available.data();
    TRY(cuptiProfilerHostInitialize(&made));
    host = made.pHostObject;
    return 0;
}

int make_config(size_t *passes) {
    PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
    add.pHostObject = host;
    add.ppMetricNames = metrics;
    add.numMetrics = metric_count;
    TRY(cuptiProfilerHostConfigAddMetrics(&add));
    PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = host;
    TRY(cuptiProfilerHostGetConfigImageSize(&size));
    config.resize(size.configImageSize);
    PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, image);
    image.pHostObject = host;
    image.pConfigImage = config.data();
    image.configImageSize = config.size();
    TRY(cuptiProfilerHostGetConfigImage(&image));
    PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, needs);
    needs.pConfigImage = config.data();
    needs.configImageSize = config.size();
    TRY(cuptiProfilerHostGetNumOfPasses(&needs));
    *passes = needs.numOfPasses;
    return 0;
}

int make_target(CUcontext context, size_t most) {
    PARAMS(CUpti_RangeProfiler_Enable_Params, enable);
    enable.ctx = context;
    TRY(cuptiRangeProfilerEnable(&enable));
    target = enable.pRangeProfilerObject;
    PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, room);
    room.pRangeProfilerObject = target;
    room.pMetricNames = metrics;
    room.numMetrics = metric_count;
    room.maxNumOfRanges = most;
    room.maxNumRangeTreeNodes = static_cast<uint32_t>(most);
    TRY(cuptiRangeProfilerGetCounterDataSize(&room));
    counters.resize(room.counterDataSize);
    PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, image);
    image.pRangeProfilerObject = target;
    image.pCounterData = counters.data();
    image.counterDataSize = counters.size();
    TRY(cuptiRangeProfilerCounterDataImageInitialize(&image));
    PARAMS(CUpti_RangeProfiler_SetConfig_Params, set);
    set.pRangeProfilerObject = target;
    set.pConfig = config.data();
    set.configSize = config.size();
    set.pCounterDataImage = counters.data();
    set.counterDataImageSize = counters.size();
    set.maxRangesPerPass = most;
    set.numNestingLevels = 1;
    set.minNestingLevel = 1;
    set.targetNestingLevel = 1;
    set.range = CUPTI_AutoRange;
    set.replayMode = CUPTI_UserReplay;
    TRY(cuptiRangeProfilerSetConfig(&set));
    return 0;
}
}  // namespace

extern "C" {
// The call that failed last, its code and what CUPTI says of it.
const char *ranges_why() { return why; }

// In a thread with a CUDA context; `names` must live on. Room for `most` kernels a step.
int ranges_open(const char **names, size_t count, size_t most, size_t *passes) {
    CUcontext context = nullptr;
    CUdevice device = 0;
    metrics = names;
    metric_count = count;
    TRY(cuCtxGetCurrent(&context));
    TRY(cuCtxGetDevice(&device));
    PARAMS(CUpti_Profiler_Initialize_Params, init);
    TRY(cuptiProfilerInitialize(&init));
    if (int code = make_host(context, device)) return code;
    if (int code = make_config(passes)) return code;
    return make_target(context, most);
}

int ranges_start() {
    PARAMS(CUpti_RangeProfiler_Start_Params, start);
    start.pRangeProfilerObject = target;
    TRY(cuptiRangeProfilerStart(&start));
    return 0;
}

int ranges_stop(int *all_passes) {
    PARAMS(CUpti_RangeProfiler_Stop_Params, stop);
    stop.pRangeProfilerObject = target;
    TRY(cuptiRangeProfilerStop(&stop));
    *all_passes = stop.isAllPassSubmitted;
    return 0;
}

int ranges_decode(size_t *found, size_t *dropped) {
    PARAMS(CUpti_RangeProfiler_DecodeData_Params, decode);
    decode.pRangeProfilerObject = target;
    TRY(cuptiRangeProfilerDecodeData(&decode));
    *dropped = decode.numOfRangeDropped;
    PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
    info.pCounterDataImage = counters.data();
    info.counterDataImageSize = counters.size();
    TRY(cuptiRangeProfilerGetCounterDataInfo(&info));
    *found = info.numTotalRanges;
    return 0;
}

int ranges_read(size_t index, double *values) {
    PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, ask);
    ask.pHostObject = host;
    ask.pCounterDataImage = counters.data();
    ask.counterDataImageSize = counters.size();
    ask.ppMetricNames = metrics;
    ask.numMetrics = metric_count;
    ask.rangeIndex = index;
    ask.pMetricValues = values;
    TRY(cuptiProfilerHostEvaluateToGpuValues(&ask));
    return 0;
}

int ranges_close() {
    PARAMS(CUpti_RangeProfiler_Disable_Params, disable);
    disable.pRangeProfilerObject = target;
    TRY(cuptiRangeProfilerDisable(&disable));
    PARAMS(CUpti_Profiler_Host_Deinitialize_Params, host_end);
    host_end.pHostObject = host;
    TRY(cuptiProfilerHostDeinitialize(&host_end));
    PARAMS(CUpti_Profiler_DeInitialize_Params, end);
    TRY(cuptiProfilerDeInitialize(&end));
    return 0;
}
}
