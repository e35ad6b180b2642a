"""Device time of named ranges, collectives of one rank, and equal modules in one row."""

from __future__ import annotations

from pathlib import Path

import pytest

from brrrtop.model.host_tables import HostTables, ModuleRow
from brrrtop.views.host_tables import merge_siblings, of_host
from brrrtop.views.table import text_lines
from tests.analysis.test_steady_part import Trace

NCCL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"


def _rows(trace: Trace, folder: Path) -> dict[str, int]:
    return {row.name: row.device_ns for row in trace.judged(folder).tables.annotations}


def test_streams_that_overlap_count_once_in_a_range(tmp_path: Path) -> None:
    trace = Trace()
    trace.host("user_annotation", "dispatch", 0, 1_000)
    for place in range(10):
        trace.kernel(2_000 + place * 1_000, 1_000, launched=10 + place * 20)
        trace.kernel(2_000 + place * 1_000, 900, launched=15 + place * 20)
        trace.events[-1]["args"]["stream"] = trace.events[-1]["tid"] = 9
    assert _rows(trace, tmp_path) == {"dispatch": 10_000_000}


def test_a_profilers_step_has_what_ran_between_its_marks_whoever_launched_it(
    tmp_path: Path,
) -> None:
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


def test_collectives_of_one_rank_have_size_type_and_rate(tmp_path: Path) -> None:
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


def test_equal_layers_are_one_row_and_what_they_hold_too() -> None:
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
