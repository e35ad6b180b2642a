"""What a trace holds once is named, and not judged by; a step begins with its mark."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from brrrtop.model.host_tables import HostTables, ModuleRow
from brrrtop.model.snapshot import Once, Snapshot
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.text import phrases
from brrrtop.views.host_tables import merge_siblings, of_host
from brrrtop.views.table import text_lines

STEP_US = 10_000
LAUNCH_US = 100


class Trace:
    """A trace of one stream, written as Kineto does; times in microseconds."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.correlation = 0

    def host(self, cat: str, name: str, start: float, us: float, **args: Any) -> None:
        args_ = {"args": args} if args else {}
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": 1,
                "tid": 1,
                "ts": start,
                "dur": us,
                **args_,
            }
        )

    def kernel(self, start: float, us: float, launched: float | None = None) -> None:
        self.correlation += 1
        number = {"correlation": self.correlation}
        begin = start - 10 if launched is None else launched
        self.host("cuda_runtime", "cudaLaunchKernel", begin, 5, **number)
        args = {**number, "device": 0, "stream": 7, "grid": [512, 1, 1], "block": [256, 1, 1]}
        self.events.append(
            {"ph": "X", "cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 7, "ts": start,
             "dur": us, "args": args}
        )  # fmt: skip

    def saved(self, start: float, us: float, size: int) -> None:
        self.correlation += 1
        number = {"correlation": self.correlation}
        self.host("cuda_runtime", "cudaMemcpyAsync", start - 10, us + 10, **number)
        args = {**number, "device": 0, "stream": 7, "bytes": size}
        name = "Memcpy DtoH (Device -> Pageable)"
        self.events.append(
            {"ph": "X", "cat": "gpu_memcpy", "name": name, "pid": 0, "tid": 7, "ts": start,
             "dur": us, "args": args}
        )  # fmt: skip

    def step(self, number: int, start: float, us: float = STEP_US, work: bool = True) -> None:
        self.host("user_annotation", f"ProfilerStep#{number}", start, us)
        for place in range(8 if work else 0):
            self.kernel(start + 200 + place * 1_150, 1_000)

    def judged(self, folder: Path) -> Snapshot:
        path = folder / "t.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": self.events}).encode()))
        return analyze(open_source(path))


def test_a_step_begins_with_its_mark_and_not_with_its_first_kernel(tmp_path):
    trace = Trace()
    trace.host("user_annotation", "ProfilerStep#6", 0, 30_000)
    for place in range(10):
        trace.kernel(20_000 + place * 1_000, 950)
    shown = trace.judged(tmp_path)
    assert shown.estimate.span.duration_ns == 30_000_000
    assert shown.estimate.account.idle_total_ns > 20_000_000
    assert shown.estimate.steps.step_ns == 29_950_000 and not shown.left_out


def test_steps_of_a_host_that_waits_are_as_long_as_its_own(tmp_path):
    """From first kernel to first kernel they are not: a wait at a step's start goes to the one before."""
    trace = Trace()
    for number, (start, length) in enumerate([(0, 54_000), (54_000, 34_000), (88_000, 74_000)]):
        trace.host("user_annotation", f"ProfilerStep#{number}", start, length)
        waits = "enumerate(DataLoader)#_Iter.__next__"
        trace.host("user_annotation", waits, start + 10, length - 11_000)
        for place in range(8):
            trace.kernel(start + length - 10_000 + place * 1_100, 1_000)
    assert trace.judged(tmp_path).estimate.steps.step_ns == 54_000_000


def test_the_line_of_the_work_before_the_first_kernel_is_named(tmp_path):
    trace = Trace()
    trace.host("user_annotation", "ProfilerStep#6", 0, 30_000)
    trace.host("python_function", "train.py(8): main", 0, 30_000)
    trace.host("python_function", "images.py(390): normalize", 100, 19_000)
    for place in range(10):
        trace.kernel(20_000 + place * 1_000, 950)
    shown = trace.judged(tmp_path)
    assert shown.estimate is not None and shown.estimate.cause == "host"
    assert "the main thread is at images.py:390 normalize in" in phrases.because(shown.estimate)


def test_a_step_of_which_nothing_was_recorded_is_no_part_of_the_window(tmp_path):
    trace = Trace()
    trace.step(0, 0, work=False)
    for number in (1, 2, 3, 4):
        trace.step(number, number * STEP_US)
    shown = trace.judged(tmp_path)
    assert shown.estimate.span.duration_ns == 4 * STEP_US * 1000


@pytest.mark.parametrize("before", [0, 1, 20])
def test_one_hole_is_named_and_the_busier_side_of_it_judged(tmp_path, before):
    trace = Trace()
    for place in range(before):
        trace.kernel(place * 1_000, 950)
    if before:
        trace.host("cuda_runtime", "cudaFree", before * 1_000, 90_000)
    for place in range(15):
        trace.kernel(100_000 + place * 1_000, 950)
    shown = trace.judged(tmp_path)
    if not before:
        assert not shown.left_out
        return
    [hole] = shown.left_out
    assert (hole.what, hole.place) == (Once.HOLE, "cudaFree")
    busier = max(before, 15)
    assert shown.estimate.span.duration_ns == pytest.approx(busier * 1e6, rel=0.01)
    account = shown.estimate.account
    assert account.busy_ns == busier * 950_000
    assert account.idle_total_ns < 0.06 * account.duration_ns
    assert "one gap of" in phrases.not_judged(shown) and "(cudaFree)" in phrases.not_judged(shown)


def test_waits_that_come_again_are_judged(tmp_path):
    two = Trace()
    for start in (0, 50_000, 100_000):
        for place in range(10):
            two.kernel(start + place * 1_000, 950)
    assert not two.judged(tmp_path).left_out
    loader = Trace()
    loader.host("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 10_000, 89_000)
    for start in (0, 100_000):
        for place in range(10):
            loader.kernel(start + place * 1_000, 950)
    assert not loader.judged(tmp_path).left_out


def test_what_comes_before_the_first_whole_step_is_start_up(tmp_path):
    trace = Trace()
    trace.kernel(-60_000, 1_000)
    for number in range(4):
        trace.host("user_annotation", "Optimizer.step#Adam.step", number * STEP_US - 500, 400)
        for place in range(8):
            trace.kernel(number * STEP_US + 200 + place * 1_150, 1_000)
    trace.host("user_annotation", "Optimizer.step#Adam.step", 4 * STEP_US - 500, 400)
    shown = trace.judged(tmp_path)
    [first] = shown.left_out
    assert first.what is Once.START_UP and first.step is None
    assert "start-up, the first 60.2 ms" in phrases.not_judged(shown)


def _with_odd_step(at: int, saves: int = 0) -> Trace:
    trace, start = Trace(), 0
    for number in range(6):
        trace.step(number, start, STEP_US + 50_000 * (number == at))
        if number == at:
            for copy in range(saves):
                trace.saved(start + 12_000 + copy * 300, 250, 1 << 20)
        start += STEP_US + 50_000 * (number == at)
    return trace


@pytest.mark.parametrize(("at", "steps"), [(1, 4), (4, 4)])
def test_an_odd_step_is_told_apart(tmp_path, at, steps):
    shown = _with_odd_step(at).judged(tmp_path)
    [odd] = shown.left_out
    assert (odd.what, odd.step) == (Once.ODD_STEP, at + 1)
    assert shown.estimate is not None and shown.estimate.steps.count == steps
    assert shown.estimate.account.idle_total_ns < 0.25 * shown.estimate.account.duration_ns


def test_tensor_after_tensor_to_pageable_memory_is_a_checkpoint(tmp_path):
    shown = _with_odd_step(3, saves=134).judged(tmp_path)
    [odd] = shown.left_out
    assert (odd.what, odd.step) == (Once.CHECKPOINT, 4)
    assert "a checkpoint in step 4, which took 60" in phrases.not_judged(shown)
    assert all(one.kind != "host-stall" for one in shown.advisories)


NCCL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"


def _rows(trace: Trace, folder: Path) -> dict[str, int]:
    return {row.name: row.device_ns for row in trace.judged(folder).tables.annotations}


def test_streams_that_overlap_count_once_in_a_range(tmp_path):
    trace = Trace()
    trace.host("user_annotation", "dispatch", 0, 1_000)
    for place in range(10):
        trace.kernel(2_000 + place * 1_000, 1_000, launched=10 + place * 20)
        trace.kernel(2_000 + place * 1_000, 900, launched=15 + place * 20)
        trace.events[-1]["args"]["stream"] = trace.events[-1]["tid"] = 9
    assert _rows(trace, tmp_path) == {"dispatch": 10_000_000}


def test_a_profilers_step_has_what_ran_between_its_marks_whoever_launched_it(tmp_path):
    trace = Trace()
    for number in range(3):
        trace.step(number, number * 10_000)
        for event in trace.events[-16:]:
            if (
                event["cat"] == "cuda_runtime" and number
            ):  # of the backward pass, by autograd's thread
                event["tid"] = 2
    trace.host("user_annotation", "optimizer", 25_000, 1_000)
    trace.events[-1]["tid"] = 2
    rows = _rows(trace, tmp_path)
    assert rows["ProfilerStep"] == 3 * 8 * 1_000_000


def test_collectives_of_one_rank_have_size_type_and_rate(tmp_path):
    trace = Trace()
    for number in range(4):
        start = number * 10_000
        named = {"External id": 100 + number, "Collective name": "allreduce", "dtype": "Float"}
        trace.host(
            "cpu_op", "record_param_comms", start, 100, **named, **{"In msg nelems": 1 << 20}
        )
        trace.kernel(start + 500, 1_000, launched=start + 20)
        trace.events[-1]["name"] = NCCL
        for event in trace.events[-2:]:
            event["args"]["External id"] = 100 + number
        for place in range(3):
            trace.kernel(start + 2_000 + 1_200 * place, 1_000)
    [row] = trace.judged(tmp_path).tables.collectives
    assert (row.name, row.algorithm, row.precision) == ("all-reduce", "ring, LL", "fp32")
    assert (row.count, row.size_bytes) == (4, 4 << 20)
    assert (row.total_ns, row.exposed_ns) == (4_000_000, 4_000_000)
    assert row.bytes_per_s == pytest.approx((4 << 20) / 1e-3)
    text = "\n".join(
        line for one in of_host(HostTables(collectives=(row,)), 1) for line in text_lines(one)
    )
    assert "4.00 MiB" in text and "4.19 GB/s" in text and "at least" in text


def _module(name: str, parent: str | None, depth: int, ns: int) -> ModuleRow:
    return ModuleRow(name, parent, depth, 2, ns, ns, ns, 0, {"memory": ns}, 0.5)


def test_equal_layers_are_one_row_and_what_they_hold_too():
    rows = [_module("Model_0", None, 0, 2_400)]
    for layer in range(24):
        rows.append(_module(f"Layer_{layer}", "Model_0", 1, 100))
        rows.append(_module(f"Attention_{layer}", f"Layer_{layer}", 2, 60))
        rows.append(_module(f"MLP_{layer}", f"Layer_{layer}", 2, 40))
    rows.append(_module("Layer_24", "Model_0", 1, 10))
    merged = [(row.depth, row.name, row.count, row.device_total_ns) for row in merge_siblings(rows)]
    assert merged == [
        (0, "Model_0", 2, 2_400),
        (1, "24 × Layer", 48, 2_400),
        (2, "24 × Attention", 48, 1_440),
        (2, "24 × MLP", 48, 960),
        (1, "Layer_24", 2, 10),
    ]
    text = "\n".join(
        line for one in of_host(HostTables(modules=tuple(rows)), 1) for line in text_lines(one)
    )
    assert "24 × Layer" in text and "Layer_7" not in text and " 50 ns" in text


def test_updates_after_a_rollout_are_no_steps_and_it_is_no_start_up(tmp_path):
    trace = Trace()
    for place in range(200):
        trace.kernel(place * 1_000, 100)
    for number in range(4):
        trace.host("user_annotation", "Optimizer.step#Adam.step", 200_000 + number * STEP_US, 400)
        for place in range(8):
            trace.kernel(200_500 + number * STEP_US + place * 1_150, 1_000)
    shown = trace.judged(tmp_path)
    assert not shown.left_out and shown.estimate.steps.source != "annotations"


def test_a_line_is_that_of_the_loop_where_it_launches_nothing_and_not_of_a_backward_pass(tmp_path):
    """Samples while the device idles are mostly at `backward()` of a launch-bound loop, whose ops run elsewhere."""
    trace = Trace()
    frame = "python_function"
    for number in range(6):
        start = number * 30_000
        trace.host("user_annotation", f"ProfilerStep#{number}", start, 30_000)
        trace.host(frame, "train.py(9): tokenise", start + 10, 9_000)
        trace.host(frame, "train.py(20): step", start + 9_100, 20_000)
        for place in range(20):
            begun = start + 9_200 + place * 950
            trace.host("cpu_op", "aten::mm", begun - 800, 810)
            trace.kernel(begun + 20, 60, launched=begun)
    samples = trace.judged(tmp_path).estimate.stack_samples
    first = samples.lines[0]
    assert first.place == "train.py:9 tokenise" and first.count > 0.6 * samples.count
