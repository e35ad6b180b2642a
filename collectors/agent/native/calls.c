#include "records.h"

/* Ids from cupti_runtime_cbid.h and cupti_driver_cbid.h; they never change once given. */
#define RUNTIME 0
#define DRIVER 1
const struct call CALLS[] = {
    {211, RUNTIME, CALL_LAUNCH, 0, "cudaLaunchKernel"},
    {214, RUNTIME, CALL_LAUNCH, 0, "cudaLaunchKernel_ptsz"},
    {269, RUNTIME, CALL_LAUNCH, 0, "cudaLaunchCooperativeKernel"},
    {270, RUNTIME, CALL_LAUNCH, 0, "cudaLaunchCooperativeKernel_ptsz"},
    {430, RUNTIME, CALL_LAUNCH, 0, "cudaLaunchKernelExC"},
    {431, RUNTIME, CALL_LAUNCH, 0, "cudaLaunchKernelExC_ptsz"},
    {505, RUNTIME, CALL_LAUNCH, 130000, "__cudaLaunchKernel"},
    {506, RUNTIME, CALL_LAUNCH, 130000, "__cudaLaunchKernel_ptsz"},
    {311, RUNTIME, CALL_GRAPH_LAUNCH, 0, "cudaGraphLaunch"},
    {312, RUNTIME, CALL_GRAPH_LAUNCH, 0, "cudaGraphLaunch_ptsz"},
    {307, DRIVER, CALL_LAUNCH, 0, "cuLaunchKernel"},
    {442, DRIVER, CALL_LAUNCH, 0, "cuLaunchKernel_ptsz"},
    {652, DRIVER, CALL_LAUNCH, 0, "cuLaunchKernelEx"},
    {653, DRIVER, CALL_LAUNCH, 0, "cuLaunchKernelEx_ptsz"},
    {477, DRIVER, CALL_LAUNCH, 0, "cuLaunchCooperativeKernel"},
    {478, DRIVER, CALL_LAUNCH, 0, "cuLaunchCooperativeKernel_ptsz"},
    {514, DRIVER, CALL_GRAPH_LAUNCH, 0, "cuGraphLaunch"},
    {515, DRIVER, CALL_GRAPH_LAUNCH, 0, "cuGraphLaunch_ptsz"},
    {165, RUNTIME, CALL_SYNC, 0, "cudaDeviceSynchronize"},
    {131, RUNTIME, CALL_SYNC, 0, "cudaStreamSynchronize"},
    {239, RUNTIME, CALL_SYNC, 0, "cudaStreamSynchronize_ptsz"},
    {137, RUNTIME, CALL_SYNC, 0, "cudaEventSynchronize"},
    {31, RUNTIME, CALL_COPY, 0, "cudaMemcpy"},
    {41, RUNTIME, CALL_COPY, 0, "cudaMemcpyAsync"},
    {225, RUNTIME, CALL_COPY, 0, "cudaMemcpyAsync_ptsz"},
    {126, DRIVER, CALL_SYNC, 0, "cuStreamSynchronize"},
    {440, DRIVER, CALL_SYNC, 0, "cuStreamSynchronize_ptsz"},
    {17, DRIVER, CALL_SYNC, 0, "cuCtxSynchronize"},
    {800, DRIVER, CALL_SYNC, 130000, "cuCtxSynchronize_v2"},
    {121, DRIVER, CALL_SYNC, 0, "cuEventSynchronize"},
};
const size_t CALL_COUNT = sizeof CALLS / sizeof CALLS[0];

static struct call_row rows[2][CALL_IDS];

void calls_name(void)
{
    for (size_t i = 0; i < CALL_COUNT; i++) {
        const struct call *call = &CALLS[i];
        rows[call->driver][call->cbid] =
            (struct call_row){names_add(call->name, strlen(call->name)), call->call_class, true};
    }
}

const struct call_row *call_row(bool driver, uint32_t cbid)
{
    if (cbid >= CALL_IDS || !rows[driver][cbid].known)
        return NULL;
    return &rows[driver][cbid];
}
