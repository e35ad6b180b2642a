"""What a trace says arrives as records: exact times, joined launches, named marks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brrrtop.sources.importers.kineto.source import KinetoSource
from brrrtop.sources.registry import open_source
from collectors.protocol.frames import Kind
from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind
from tests.session.handmade import (
    Received,
    annotation,
    copy,
    kernel,
    launch,
    op,
    text_of,
    written,
)

MM = {"Input Dims": [[8, 4], [4, 2]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}


def _received(folder: Path, events: list[dict[str, Any]], **facts: Any) -> Received:
    return Received(KinetoSource(written(folder, text_of(events, **facts))))


@pytest.mark.parametrize(
    ("written_us", "expected_ns"),
    [
        ("1712195495505543.217", 1712195495505543217),
        ("1712195495505543.2", 1712195495505543200),
        ("1712195495505543", 1712195495505543000),
        ("1712195495505543.2175", 1712195495505543218),
        ("1.712195495505543217e15", 1712195495505543217),
        ("4373332226103.908", 1790857026000000000 + 4373332226103908),
    ],
)
def test_times_that_doubles_cannot_hold_are_read_from_the_text(tmp_path, written_us, expected_ns):
    base = 0 if expected_ns < 1790857026000000000 else 1790857026000000000
    text = text_of([kernel("TS", 3.25)], baseTimeNanoseconds=base)
    received = Received(KinetoSource(written(tmp_path, text.replace(b'"TS"', written_us.encode()))))
    assert received.kernels["start_ns"][0] == expected_ns
    assert received.kernels["end_ns"][0] == expected_ns + 3250


def test_a_kernel_carries_what_the_trace_says_of_it(tmp_path):
    graph = {"graph id": 4, "graph node id": 17179869187, "channel": 2}
    received = _received(tmp_path, [kernel(10, 5, 3, "sgemm", **graph), launch(1, 2, 3)])
    row = received.kernels[0]
    assert (row["correlation"], row["device"], row["stream"]) == (3, 0, 7)
    assert row["grid"].tolist() == [4, 2, 1] and row["block"].tolist() == [128, 1, 1]
    assert (row["registers"], row["shared_bytes"]) == (32, 1024)
    assert (row["graph"], row["graph_node"], row["channel"]) == (4, 17179869187, 2)
    assert received.names[int(row["name_id"])] == "sgemm"


def test_copies_carry_their_way_and_size(tmp_path):
    events = [
        copy(1, 2, 0, "Memcpy HtoD (Pageable -> Device)", 64),
        copy(4, 2, 0, "Memcpy DtoH (Device -> Pinned)", 32),
        copy(7, 2, 0, "Memset (Device)", 16),
        copy(10, 2, 0, "Memcpy PtoP (Device -> Device)", 8),
    ]
    rows = _received(tmp_path, events).copies
    assert rows["copy_kind"].tolist() == [
        CopyKind.HTOD,
        CopyKind.DTOH,
        CopyKind.MEMSET,
        CopyKind.PTOP,
    ]
    assert rows["src_kind"].tolist()[:2] == [MemoryKind.PAGEABLE, MemoryKind.DEVICE]
    assert rows["dst_kind"].tolist()[:3] == [
        MemoryKind.DEVICE,
        MemoryKind.PINNED,
        MemoryKind.DEVICE,
    ]
    assert rows["size_bytes"].tolist() == [64, 32, 16, 8]


CALLS = {
    CallClass.LAUNCH: "cudaLaunchKernel cudaLaunchKernelExC cuLaunchKernelEx cudaLaunchCooperativeKernel "
    "hipLaunchKernel hipExtModuleLaunchKernel hipModuleLaunchKernel hipLaunchCooperativeKernel",
    CallClass.GRAPH_LAUNCH: "cudaGraphLaunch hipGraphLaunch",
    CallClass.SYNC: "cudaStreamSynchronize cudaDeviceSynchronize cuCtxSynchronize cudaEventSynchronize "
    "hipDeviceSynchronize",
    CallClass.EVENT: "cudaEventQuery cudaStreamWaitEvent hipStreamWaitEvent",
    CallClass.ALLOC: "cudaMalloc cudaFree cudaFreeAsync cuMemCreate cuMemAlloc_v2 hipHostMalloc hipMemGetInfo",
    CallClass.COPY: "cudaMemcpyAsync cudaMemsetAsync cuMemcpyHtoDAsync_v2 cuMemsetD32Async "
    "hipMemcpyWithStream hipMemsetAsync",
    CallClass.MODULE: "cuModuleLoadData cuLibraryLoadData hipGraphInstantiateWithFlags hipModuleLoadData",
    CallClass.OTHER: "cudaStreamIsCapturing cudaDeviceGetAttribute hipGetDevicePropertiesR0600",
}


def test_calls_are_classed_by_name(tmp_path):
    wanted = [(name, int(one)) for one, names in CALLS.items() for name in names.split()]
    calls = [launch(at, 1, at, name) for at, (name, _) in enumerate(wanted, 1)]
    received = _received(tmp_path, [kernel(99, 1, 1), *calls])
    names = [received.names[int(number)] for number in received.calls["name_id"]]
    assert list(zip(names, received.calls["call_class"].tolist(), strict=True)) == wanted


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ProfilerStep#12", MarkClass.STEP),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", MarkClass.INPUT),
        ("[pl][profile][_TrainingEpochLoop].train_dataloader_next", MarkClass.INPUT),
        ("Optimizer.step#AdamW.step", MarkClass.OPTIMIZER),
        ("compile_fx_inner (dynamo_timed)", MarkClass.COMPILE),
        ("TorchDynamo Cache Lookup", MarkClass.ANNOTATION),
        ("Torch-Compiled Region: 0/0", MarkClass.ANNOTATION),
        ("## Call CompiledFxGraph frt5y ##", MarkClass.ANNOTATION),
        ("_compile.compile_inner (dynamo_timed)", MarkClass.COMPILE),
        ("gc.collect", MarkClass.GC),
        ("save_checkpoint", MarkClass.CHECKPOINT),
        ("## evaluation ##", MarkClass.EVALUATION),
        ("logging", MarkClass.LOGGING),
        ("Optimizer.zero_grad#SGD.zero_grad", MarkClass.ANNOTATION),
        ("nccl:all_reduce", MarkClass.ANNOTATION),
        ("DistributedDataParallel.forward", MarkClass.ANNOTATION),
        ("CatalogLoader", MarkClass.ANNOTATION),
    ],
)
def test_ranges_are_classed_by_name(tmp_path, name, expected):
    received = _received(tmp_path, [kernel(9, 1), annotation(1, 2, name)])
    assert received.marks["mark_class"].tolist() == [expected]
    assert received.marks["value"].tolist() == [12 if expected == MarkClass.STEP else 0]


def test_a_launch_is_linked_to_the_innermost_op_with_shapes(tmp_path):
    events = [
        op(0, 100, "aten::linear", **MM),
        op(10, 50, "aten::mm", **MM),
        op(12, 40, "aten::inner_detail"),
        launch(20, 5, 3),
        kernel(60, 5, 3),
        op(70, 20, "aten::add", **MM),
        launch(61, 2, 4),
        kernel(80, 5, 4),
    ]
    received = _received(tmp_path, events)
    assert received.op_of(3) == "aten::mm"
    assert received.op_of(4) == "aten::linear"
    name, dims, types, concrete = received.ops[int(received.links["op_id"][0])]
    assert (name, dims, types, concrete) == (
        "aten::mm",
        [[8, 4], [4, 2]],
        ["float", "float"],
        ["", ""],
    )


def _mm(name: str, at: int, external: int | None = None, span: int = 10, tid: int = 10) -> Any:
    return op(at, span, name, tid, **MM, **({} if external is None else {"External id": external}))


@pytest.mark.parametrize(
    ("ops", "external", "wanted"),
    [
        ([_mm("of another thread", 0, span=100, tid=11), _mm("over", 0)], None, None),
        ([_mm("named", 0, 77)], 77, "named"),
        ([_mm("around it", 0, 50), _mm("of the correlation's number", 100, 3)], 3, "around it"),
    ],
)
def test_launches_belong_to_ops_around_them_or_named(tmp_path, ops, external, wanted):
    ids = {} if external is None else {"External id": external}
    start = 20 if external is None else 1
    acts = [kernel(60, 5, 3, **ids), *([kernel(70, 5, 4, **ids)] if wanted == "named" else [])]
    received = _received(tmp_path, [*ops, launch(start, 5, 3, **ids), *acts])
    assert {received.op_of(int(one)) for one in received.kernels["correlation"]} == {wanted}


def test_only_outermost_ops_become_marks(tmp_path):
    events = [
        op(0, 100, "aten::linear"),
        op(10, 50, "aten::mm"),
        op(0, 9, "aten::t", tid=11),
        kernel(1, 1),
    ]
    assert sorted(_received(tmp_path, events).marks_of(MarkClass.OP)) == ["aten::linear", "aten::t"]


def test_reading_a_value_back_is_a_sync_and_uploading_is_not(tmp_path):
    events = [
        op(0, 30, "aten::item"),
        op(1, 28, "aten::_local_scalar_dense"),
        launch(2, 3, 1, "cudaMemcpyAsync"),
        launch(6, 20, 0, "cudaStreamSynchronize"),
        copy(10, 2, 1, "Memcpy DtoH (Device -> Pageable)", 4),
        op(40, 30, "aten::to"),
        op(41, 28, "aten::copy_"),
        launch(42, 3, 2, "cudaMemcpyAsync"),
        launch(46, 20, 0, "cudaStreamSynchronize"),
        copy(47, 2, 2, "Memcpy HtoD (Pageable -> Device)", 4),
        op(80, 5, "aten::item"),
        op(90, 9, "aten::mm"),
        launch(91, 2, 0, "cudaDeviceSynchronize"),
    ]
    received = _received(tmp_path, events)
    rows = received.marks[received.marks["mark_class"] == MarkClass.PYTHON_SYNC]
    assert [received.names[int(i)] for i in rows["name_id"]] == ["aten::item"]
    assert rows["end_ns"][0] - rows["start_ns"][0] == 30_000


def test_a_correlation_used_twice_goes_to_the_nearest_launch_before(tmp_path):
    events = [
        launch(0, 5, 3),
        kernel(10, 5, 3),
        launch(100, 5, 3),
        kernel(110, 5, 3),
        launch(200, 5, 4),
        kernel(210, 5, 4),
    ]
    received = _received(tmp_path, events)
    assert len(set(received.calls["correlation"].tolist())) == 3
    assert received.kernels["correlation"].tolist() == received.calls["correlation"].tolist()


def _rank(pid: int, late: float, shape: int, device: int, first: int = 1) -> list[dict[str, Any]]:
    """Twenty products of one process, whose ids begin at `first` and whose thread is numbered 10."""
    events = []
    for i in range(20):
        at = i * 100 + late
        inputs = {"Input Dims": [[shape, 4], [4, 2]], "Input type": ["float"] * 2}
        events += [op(at, 20, "aten::mm", **inputs, **{"External id": i + first})]
        events += [launch(at + 5, 5, i + first, **{"External id": i + first})]
        events += [kernel(at + 60, 5, i + first, f"gemm_of_{pid}", device=device)]
    for event in events:
        if event["cat"] != "kernel":
            event["pid"] = pid
    return events


@pytest.mark.parametrize("first", [1, (1 << 63) - 20])
def test_processes_of_a_merged_file_keep_their_own_ids(tmp_path, first):
    # Rank 1 launches 30 us later: its calls are the nearest before the kernels of rank 0.
    received = _received(tmp_path, [*_rank(41, 0, 8, 0, first), *_rank(42, 30, 16, 1, first)])
    assert len(set(received.calls["correlation"].tolist())) == 40
    calls = {int(c["correlation"]): c for c in received.calls}
    for row in received.kernels:
        call = calls[int(row["correlation"])]
        assert row["start_ns"] - call["start_ns"] == 55_000
        links = received.links[received.links["correlation"] == row["correlation"]]
        shape = received.ops[int(links["op_id"][0])][1][0]
        assert shape == [(8, 16)[int(row["device"])], 4]
    assert len(set(received.calls["tid"].tolist())) == 2
    assert set(received.calls["tid"].tolist()) == set(
        received.marks[received.marks["mark_class"] == MarkClass.OP]["tid"].tolist()
    )


def test_processes_that_share_a_device_number_are_joined_by_time(tmp_path):
    received = _received(tmp_path, [*_rank(41, 0, 8, 0), *_rank(42, 5_000, 16, 0)])
    calls = {int(c["correlation"]): c for c in received.calls}
    for row in received.kernels:
        assert row["start_ns"] - calls[int(row["correlation"])]["start_ns"] == 55_000


def test_one_launch_of_many_kernels_keeps_them_all(tmp_path):
    events = [launch(0, 5, 3, "cudaGraphLaunch"), *(kernel(10 + i, 1, 3) for i in range(5))]
    assert _received(tmp_path, events).kernels["correlation"].tolist() == [3] * 5


def test_ids_beyond_32_bits_stay_apart_and_joined(tmp_path):
    big = 1 << 40
    events = [
        launch(0, 5, big + 1, tid=1 << 45),
        launch(6, 5, big + 2, tid=(1 << 45) + 1),
        kernel(10, 5, big + 1, stream=1 << 35),
        kernel(20, 5, big + 2, stream=(1 << 35) + 1),
        copied := copy(30, 1, 0, "Memset (Device)", 4),
    ]
    copied["args"]["stream"] = 1 << 35
    received = _received(tmp_path, events)
    assert received.copies["stream"][0] == received.kernels["stream"][0]
    assert received.kernels["correlation"].tolist() == received.calls["correlation"].tolist()
    assert 0 not in received.kernels["correlation"]
    assert (
        len(set(received.calls["tid"].tolist())) == 2
        and len(set(received.kernels["stream"].tolist())) == 2
    )


def test_the_old_format_reads_like_todays(tmp_path):
    old_kernel = {**kernel(20, 5, 3), "cat": "Kernel", "tid": "stream 7"}
    old_kernel["args"] = {**old_kernel["args"], "external id": 5}
    old_launch = {**launch(2, 3, 3, tid="25738"), "cat": "Runtime"}
    old_op = {**op(0, 10, "aten::mm", tid="25738", **{"External id": 5}, **MM), "cat": "Operator"}
    old_step = {**annotation(0, 50, "ProfilerStep#2", tid="25738"), "cat": "Operator"}
    old_copy = {**copy(30, 5, 0, "Memcpy HtoD (Pageable -> Device)", 8), "cat": "Memcpy"}
    received = _received(tmp_path, [old_kernel, old_launch, old_op, old_step, old_copy])
    assert received.op_of(3) == "aten::mm"
    assert received.calls["tid"].tolist() == [25738]
    assert received.marks_of(MarkClass.STEP) == ["ProfilerStep#2"]
    assert received.marks_of(MarkClass.OP) == ["aten::mm"]
    assert len(received.copies) == 1


def test_several_devices_keep_their_work_and_facts(tmp_path):
    events = [kernel(1, 2), kernel(1, 2, device=1), kernel(5, 1, device=3)]
    gpus = [{"id": i, "name": f"GPU {i}", "numSms": 10 + i} for i in range(8)]
    received = _received(tmp_path, events, deviceProperties=gpus)
    assert sorted(received.kernels["device"].tolist()) == [0, 1, 3]
    assert [f.body["sm_count"] for f in received.of(Kind.DEVICE)] == [10, 11, 13]


def test_the_hello_says_who_this_was(tmp_path):
    path = written(
        tmp_path,
        text_of([kernel(1, 2), launch(0, 1, 0)], distributedInfo={"rank": 3, "world_size": 8}),
    )
    source = open_source(path)
    received = Received(source)
    assert (received.hello["rank"], received.hello["world"], received.hello["pid"]) == (3, 8, 9)
    assert (source.info.kind, source.info.rank, source.info.world) == ("kineto", 3, 8)


def test_facts_after_the_events_count_as_well(tmp_path):
    text = b'{"traceEvents": [%s], "baseTimeNanoseconds": 1700000000000000000}'
    event = text_of([kernel(1, 2)]).split(b'"traceEvents": [')[1][:-2]
    received = Received(KinetoSource(written(tmp_path, text % event)))
    assert received.kernels["start_ns"].tolist() == [1700000000000001000]


def test_slices_come_in_time_and_replay_gives_what_one_read_gives(tmp_path):
    events = [
        e
        for i in range(300)
        for e in (launch(i * 5000, 3, i + 1), kernel(i * 5000 + 50, 900, i + 1))
    ]
    path = written(tmp_path, text_of(events))
    whole = Received(KinetoSource(path))
    assert [f.sent_ns for f in whole.frames] == sorted(f.sent_ns for f in whole.frames)
    source = KinetoSource(path)
    pieces = []
    for now in range(source.span.t0_ns, source.span.t1_ns + 70_000_000, 70_000_000):
        got = list(source.frames(now))
        for frame in got:
            assert frame.sent_ns <= now
            if frame.kind == Kind.KERNELS:
                assert int(frame.body["end_ns"].max()) <= now
        pieces += got
    assert source.ended
    assert [f.kind for f in pieces] == [f.kind for f in whole.frames]
    source.seek(source.span.t0_ns)
    assert len(list(source.frames())) == len(pieces)
    for rows in (whole.kernels, whole.calls):
        assert len(rows) == 300 and (np.diff(rows["end_ns"]) >= 0).all()


def test_events_out_of_order_arrive_in_order(tmp_path):
    events = [kernel(i, 1) for i in (50, 3, 20, 1)]
    assert (np.diff(_received(tmp_path, events).kernels["start_ns"]) > 0).all()


def test_a_device_side_view_of_a_wait_is_no_device_work(tmp_path):
    waits = {**kernel(0, 500), "cat": "cuda_sync", "name": "Stream Sync"}
    assert len(_received(tmp_path, [waits, kernel(1, 1)]).kernels) == 1


def test_a_compile_is_one_mark_named_by_the_code_that_runs_after_it(tmp_path):
    def compile_ops(at: int) -> list[dict[str, Any]]:
        return [
            op(at, 100, "dynamo"),
            op(at + 1, 98, "entire_frame_compile"),
            op(at + 2, 90, "_compile.compile_inner (dynamo_timed)"),
            op(at + 10, 40, "compile_file (dynamo_timed)", tid=11),
            op(at + 3, 5, "aten::mm"),
        ]

    events = [
        *compile_ops(0),
        op(100, 50, "Torch-Compiled Region: 0/0"),
        op(200, 5, "TorchDynamo Cache Lookup"),
        op(205, 50, "Torch-Compiled Region: 0/0"),
        *compile_ops(300),
        op(410, 50, "Torch-Compiled Region: 0/2"),
        *compile_ops(500),
        kernel(1, 1),
    ]
    received = _received(tmp_path, events)
    rows = received.marks[received.marks["mark_class"] == MarkClass.COMPILE]
    assert (rows["end_ns"] - rows["start_ns"]).tolist() == [100_000] * 3
    assert rows["value"].tolist() == [0, 2, 0]
    assert [received.names[int(i)] for i in rows["name_id"]] == [
        "Torch-Compiled Region: 0/0",
        "Torch-Compiled Region: 0/2",
        "dynamo",
    ]
    assert "aten::mm" not in received.marks_of(MarkClass.OP)
