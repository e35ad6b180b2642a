#include "trace.h"

#define NAME_CELLS 4096u

struct record_counts records_seen;
static struct {
    const char *pointer;
    uint32_t id;
} name_cells[NAME_CELLS];
static int64_t earliest, latest = INT64_MAX;

void records_bounds(int64_t earliest_ns, int64_t latest_ns)
{
    earliest = earliest_ns;
    latest = latest_ns;
}

void records_forget_names(void) { memset(name_cells, 0, sizeof name_cells); }

#define READER(name, type)                                                                         \
    static inline type name(const uint8_t *p)                                                      \
    {                                                                                              \
        type value;                                                                                \
        memcpy(&value, p, sizeof value);                                                           \
        return value;                                                                              \
    }
READER(u16_at, uint16_t)
READER(u32_at, uint32_t)
READER(u64_at, uint64_t)
READER(i64_at, int64_t)

static inline uint32_t kernel_name(const uint8_t *record)
{
    const char *pointer;
    memcpy(&pointer, record + KERNEL_NAME, sizeof pointer);
    if (pointer == NULL)
        return 0;
    uintptr_t mixed = (uintptr_t)pointer;
    uint32_t cell = (uint32_t)(mixed >> 4 ^ mixed >> 16) % NAME_CELLS;
    if (name_cells[cell].pointer != pointer) {
        name_cells[cell].id = names_add_kernel(pointer);
        name_cells[cell].pointer = pointer;
    }
    return name_cells[cell].id;
}

/* True when the times can be used; else the record is counted where it belongs. */
static inline bool times_good(int64_t start, int64_t end, uint32_t graph)
{
    if (__builtin_expect(start >= earliest && start <= end && end <= latest && start > 0, 1))
        return true;
    if (start == 0 || end == 0) {
        records_seen.zero_timestamps++;
        records_seen.zero_in_graphs += graph != 0;
    } else {
        records_seen.wrong_clock++;
    }
    coverage_taint();
    return false;
}

static inline void convert_kernel(const uint8_t *record)
{
    int64_t start = i64_at(record + KERNEL_START), end = i64_at(record + KERNEL_END);
    uint32_t graph = u32_at(record + KERNEL_GRAPH);
    records_seen.launched_kernels += graph == 0;
    records_seen.graph_kernels += graph != 0;
    correlation_kernel(u32_at(record + KERNEL_CORRELATION));
    if (!times_good(start, end, graph))
        return;
    uint32_t device = u32_at(record + KERNEL_DEVICE), stream = u32_at(record + KERNEL_STREAM);
    records_seen.kernels++;
    coverage_add(device, stream, start, end);
    uint32_t name_id = kernel_name(record);
    struct wire_kernel *out = lane_next(LANE_KERNELS, sizeof *out);
    if (out == NULL)
        return;
    out->start_ns = start;
    out->end_ns = end;
    out->correlation = u32_at(record + KERNEL_CORRELATION);
    out->name_id = name_id;
    out->device = (int32_t)device;
    out->stream = stream;
    memcpy(out->grid, record + KERNEL_GRID, sizeof out->grid);
    memcpy(out->block, record + KERNEL_BLOCK, sizeof out->block);
    out->shared_bytes = u32_at(record + KERNEL_SHARED_STATIC) + u32_at(record + KERNEL_SHARED_DYNAMIC);
    out->registers = u16_at(record + KERNEL_REGISTERS);
    out->flags = 0;
    out->graph = graph;
    out->channel = u32_at(record + KERNEL_CHANNEL);
    out->graph_node = u64_at(record + KERNEL_GRAPH_NODE);
}

static void convert_copy(const uint8_t *record, uint32_t kind)
{
    bool peer = kind == KIND_MEMCPY2;
    struct wire_copy copy = {
        .start_ns = i64_at(record + COPY_START),
        .end_ns = i64_at(record + COPY_END),
        .size_bytes = i64_at(record + COPY_BYTES),
        .correlation = u32_at(record + (peer ? PEER_CORRELATION : COPY_CORRELATION)),
        .device = (int32_t)u32_at(record + COPY_DEVICE),
        .stream = u32_at(record + COPY_STREAM),
        .graph = u32_at(record + (peer ? PEER_GRAPH : COPY_GRAPH)),
    };
    if (kind == KIND_MEMSET) {
        copy.dst_kind = (uint8_t)u16_at(record + MEMSET_MEMORY);
    } else {
        copy.copy_kind = record[MEMCPY_KIND];
        copy.src_kind = record[MEMCPY_SRC];
        copy.dst_kind = record[MEMCPY_DST];
        copy.flags = record[MEMCPY_FLAGS];
    }
    if (!times_good(copy.start_ns, copy.end_ns, copy.graph))
        return;
    records_seen.copies++;
    coverage_add((uint32_t)copy.device, copy.stream, copy.start_ns, copy.end_ns);
    struct wire_copy *out = lane_next(LANE_COPIES, sizeof *out);
    if (out != NULL)
        *out = copy;
}

/* From cupti_runtime_cbid.h and cupti_driver_cbid.h: ids never change, and one that a version lacks means nothing
 * to it. Many calls have another id where a program is compiled for a default stream a thread. */
#define RUNTIME 0
#define DRIVER 1
#define WITH_PTSZ(cbid, ptsz, driver, what, name) {cbid, driver, what, name}, {ptsz, driver, what, name "_ptsz"}
const struct call CALLS[] = {
    WITH_PTSZ(211, 214, RUNTIME, CALL_LAUNCH, "cudaLaunchKernel"),
    WITH_PTSZ(269, 270, RUNTIME, CALL_LAUNCH, "cudaLaunchCooperativeKernel"),
    WITH_PTSZ(430, 431, RUNTIME, CALL_LAUNCH, "cudaLaunchKernelExC"),
    WITH_PTSZ(505, 506, RUNTIME, CALL_LAUNCH, "__cudaLaunchKernel"),
    WITH_PTSZ(311, 312, RUNTIME, CALL_GRAPH_LAUNCH, "cudaGraphLaunch"),
    WITH_PTSZ(307, 442, DRIVER, CALL_LAUNCH, "cuLaunchKernel"),
    WITH_PTSZ(652, 653, DRIVER, CALL_LAUNCH, "cuLaunchKernelEx"),
    WITH_PTSZ(477, 478, DRIVER, CALL_LAUNCH, "cuLaunchCooperativeKernel"),
    WITH_PTSZ(514, 515, DRIVER, CALL_GRAPH_LAUNCH, "cuGraphLaunch"),
    WITH_PTSZ(131, 239, RUNTIME, CALL_SYNC, "cudaStreamSynchronize"),
    WITH_PTSZ(41, 225, RUNTIME, CALL_COPY, "cudaMemcpyAsync"),
    WITH_PTSZ(126, 440, DRIVER, CALL_SYNC, "cuStreamSynchronize"),
    {165, RUNTIME, CALL_SYNC, "cudaDeviceSynchronize"},
    {137, RUNTIME, CALL_SYNC, "cudaEventSynchronize"},
    {31, RUNTIME, CALL_COPY, "cudaMemcpy"},
    {17, DRIVER, CALL_SYNC, "cuCtxSynchronize"},
    {800, DRIVER, CALL_SYNC, "cuCtxSynchronize_v2"},
    {121, DRIVER, CALL_SYNC, "cuEventSynchronize"},
};
const size_t CALL_COUNT = sizeof CALLS / sizeof CALLS[0];

/* By id; without a class: worth no row. */
static struct call_row {
    uint32_t name_id;
    uint16_t call_class;
} rows[2][CALL_IDS];

void calls_name(void)
{
    for (const struct call *call = CALLS; call < CALLS + CALL_COUNT; call++)
        rows[call->driver][call->cbid] =
            (struct call_row){names_add(call->name, strlen(call->name)), (uint16_t)call->call_class};
}

static inline void convert_call(const uint8_t *record, bool driver)
{
    uint32_t cbid = u32_at(record + API_CBID);
    if (cbid >= CALL_IDS || rows[driver][cbid].call_class == CALL_OTHER)
        return;
    const struct call_row *row = &rows[driver][cbid];
    int64_t start = i64_at(record + API_START), end = i64_at(record + API_END);
    if (!times_good(start, end, 0))
        return;
    uint32_t failed = u32_at(record + API_RESULT);
    records_seen.calls++;
    records_seen.graph_launches += row->call_class == CALL_GRAPH_LAUNCH;
    uint32_t correlation = u32_at(record + API_CORRELATION);
    if (failed == 0)
        correlation_call(correlation, driver, row->call_class);
    /* A driver call made by a runtime call has its id and ends just before it. */
    if (row->call_class == CALL_LAUNCH && failed == 0 && correlation != records_seen.last_launch) {
        records_seen.launches++;
        records_seen.last_launch = correlation;
    }
    struct wire_call *out = lane_next(LANE_CALLS, sizeof *out);
    if (out == NULL)
        return;
    out->start_ns = start;
    out->end_ns = end;
    out->correlation = correlation;
    out->tid = u32_at(record + API_THREAD);
    out->name_id = row->name_id;
    out->call_class = row->call_class;
    out->flags = (uint16_t)((driver ? CALL_FLAG_DRIVER : 0) | (failed ? CALL_FLAG_FAILED : 0));
}

bool records_arrived(const struct record_counts *since, bool graphs)
{
    if (!graphs)
        return correlation_pending() == 0;
    return records_seen.launched_kernels - since->launched_kernels >= records_seen.launches - since->launches;
}

void records_buffer(const struct strides *strides, const uint8_t *buffer, size_t valid)
{
    size_t at = 0;
    while (at + 8 <= valid) {
        const uint8_t *record = buffer + at;
        uint32_t kind = u32_at(record);
        uint32_t stride = kind < KIND_LIMIT ? strides->bytes[kind] : 0;
        if (__builtin_expect(stride == 0 || at + stride > valid, 0)) {
            records_seen.unknown_kinds++;
            coverage_taint();
            return;
        }
        switch (kind) {
        case KIND_CONCURRENT_KERNEL:
        case KIND_KERNEL:
            convert_kernel(record);
            break;
        case KIND_RUNTIME:
        case KIND_DRIVER:
            convert_call(record, kind == KIND_DRIVER);
            break;
        case KIND_MEMCPY:
        case KIND_MEMCPY2:
        case KIND_MEMSET:
            convert_copy(record, kind);
            break;
        }
        at += stride;
    }
}
