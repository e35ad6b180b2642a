"""Tables of what a trace holds beside kernels, against the raw events of real traces of an H200."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.tables.host_tables import annotation_rows
from brrrtop.cli.commands import replay
from brrrtop.cli.commands.replay import scenarios
from brrrtop.model.host_tables import (
    HostTables,
    ModuleRow,
)
from brrrtop.model.snapshot import Snapshot
from brrrtop.sources.importers.trace.reader import Inflater
from brrrtop.text.units import is_users
from brrrtop.views.json_report import document
from brrrtop.views.text import to_text
from collectors.vocabulary import MarkClass
from tests import recorded
from tests.analysis.build import NCCL, C, K, M, window

RECORDED = Path(__file__).parents[1] / "recordings"
TRACES = RECORDED / "traces"


@cache
def analyzed(path: Path) -> Snapshot:
    return recorded.analyzed(path)


def trace(name: str) -> Path:
    return next(TRACES.glob(f"{name}.json.*"))


def tables(name: str) -> HostTables:
    return analyzed(trace(name)).tables


@cache
def events(name: str) -> list[dict[str, Any]]:
    with trace(name).open("rb") as file:
        text = b"".join(Inflater(file, trace(name).stat().st_size).blocks())
    return [e for e in json.loads(text)["traceEvents"] if "cat" in e]


def on_the_device(name: str) -> list[dict[str, Any]]:
    return [e for e in events(name) if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def lies_in(one: dict[str, Any], other: dict[str, Any]) -> bool:
    ends = one["ts"] + one["dur"] <= other["ts"] + other["dur"]
    return bool(one["tid"] == other["tid"] and other["ts"] <= one["ts"] and ends)


@pytest.mark.parametrize("name", ["stacks", "serving", "deep_queue"])
def test_device_time_of_ops_is_that_of_the_kernels_that_name_them(name):
    ops = {e["args"]["External id"]: e["name"] for e in events(name) if e["cat"] == "cpu_op"}
    truth: Counter[str] = Counter()
    judged = analyzed(trace(name)).estimate
    last = max(ns(e["ts"] + e["dur"]) for e in on_the_device(name))
    for one in on_the_device(name):
        if last - ns(one["ts"]) > judged.span.duration_ns + 1:
            continue  # before the first whole step
        truth[ops[one["args"]["External id"]]] += ns(one["dur"])
    result = {row.name: row.device_self_ns for row in tables(name).ops if row.device_self_ns}
    assert result == dict(truth)
    assert tables(name).unattributed_ns == 0


def test_host_time_of_an_op_is_its_own_without_what_it_calls():
    ops = [e for e in events("stacks") if e["cat"] == "cpu_op"]
    linear = [e for e in ops if e["name"] == "aten::linear"]
    row = next(row for row in tables("stacks").ops if row.name == "aten::linear")
    assert row.count == len(linear)
    assert row.cpu_total_ns == sum(ns(e["dur"]) for e in linear)
    below = [e for e in ops if e not in linear and any(lies_in(e, o) for o in linear)]
    children = [e for e in below if not any(lies_in(e, o) for o in below if o is not e)]
    inside = sum(ns(e["dur"]) for e in children)
    assert row.cpu_self_ns == pytest.approx(row.cpu_total_ns - inside, abs=1_000)
    assert row.device_self_ns == 0 < row.device_total_ns


def test_shapes_part_an_op_and_add_up_to_it():
    result = tables("stacks")
    mm = next(row for row in result.ops if row.name == "aten::mm")
    parts = [row for row in result.op_shapes if row.name == "aten::mm"]
    assert len(parts) > 5 and all(row.shapes and row.shapes.startswith("[[") for row in parts)
    assert sum(row.device_self_ns for row in parts) == mm.device_self_ns
    assert sum(row.count for row in parts) == mm.count


def module(name: str) -> ModuleRow:
    return next(row for row in tables("stacks").modules if row.name == name)


def test_a_module_has_what_was_launched_in_its_forward_and_the_backward_of_that():
    calls = {
        e["args"]["correlation"]: e["ts"]
        for e in events("stacks")
        if e["cat"] in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]
    }
    frames = [
        (e["ts"], e["ts"] + e["dur"])
        for e in events("stacks")
        if e["cat"] == "python_function" and e["name"] == "nn.Module: Block_1"
    ]
    truth = sum(
        ns(e["dur"])
        for e in on_the_device("stacks")
        if any(low <= calls[e["args"]["correlation"]] < high for low, high in frames)
    )
    block = module("Block_1")
    assert block.count == len(frames) == 3
    assert block.device_total_ns - block.backward_ns == truth
    # The backward of a product is two products of the same size.
    assert 1.8 < block.backward_ns / truth < 2.3
    assert 0.95 < block.device_total_ns / module("Block_0").device_total_ns < 1.05
    assert block.sides_ns["compute"] > 0.7 * block.device_total_ns
    assert block.roof_share is not None and 0.3 < block.roof_share <= 1


def test_modules_are_a_tree_whose_parts_add_up():
    rows = tables("stacks").modules
    assert [(row.name, row.depth) for row in rows[:4]] == [
        ("Net_0", 0), ("Block_0", 1), ("Sequential_0", 2), ("Linear_1", 3),
    ]  # fmt: skip
    assert sum(row.device_self_ns for row in rows) == rows[0].device_total_ns
    below = [row.device_total_ns for row in rows if row.parent == "Block_0"]
    block = module("Block_0")
    assert block.device_self_ns + sum(below) == block.device_total_ns
    assert all(sum(row.sides_ns.values()) == row.device_total_ns for row in rows)


def test_stalls_name_the_function_and_what_it_waited_in():
    rows = tables("stacks").stalls
    asleep = next(row for row in rows if row.inside == "<built-in function sleep>")
    assert asleep.place.endswith("): fetch")
    # Two of the three steps' pauses of 4 ms lie between the first and the last kernel.
    assert 7.9e6 < asleep.idle_ns < 9e6
    assert not any("0x" in (row.inside or "") for row in rows)
    estimate = analyzed(trace("stacks")).estimate
    assert sum(row.idle_ns for row in rows) <= estimate.account.idle_total_ns


def test_the_verdict_names_the_line_that_the_host_was_at():
    snapshot = analyzed(trace("stacks"))
    estimate = snapshot.estimate
    line = estimate.stack_samples.lines[0]
    assert line.place == "rec.py:18 fetch"
    # 2 of 3 pauses of 4 ms, and as long in making the batch, of 24 ms in which nothing is launched.
    assert 0.7 < line.count / estimate.stack_samples.count < 0.85
    advice = next(one for one in snapshot.advisories if one.kind == "python-overhead")
    assert "rec.py:18 fetch" in advice.suggests
    assert "the main thread is at rec.py:18 fetch" in to_text(snapshot).replace("\n  ", " ")


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("train.py(12): fetch", True), ("/home/me/my torch/train.py(1): <module>", True),
        ("torch/nn/modules/module.py(1): forward", False), ("<built-in function sleep>", False),
        ("/venv/lib/python3.12/site-packages/x/y.py(3): z", False), ("nn.Module: Net_0", False),
        ("typing.py(2154): cast", False), ("multiprocessing/queues.py(9): get", False),
    ],
)  # fmt: skip
def test_frames_of_libraries_are_not_the_users(name, own):
    assert is_users(name) is own


def test_python_functions_of_the_user_have_the_device_time_launched_below_them():
    rows = {row.place.rsplit(" ", 1)[1]: row for row in tables("stacks").frames}
    assert rows.keys() == {"<module>", "rec", "step", "forward"}
    whole = sum(ns(e["dur"]) for e in on_the_device("stacks"))
    assert rows["step"].device_total_ns == whole
    assert rows["rec"].device_self_ns == 0


def test_a_full_launch_queue_blocks_the_host():
    queue = tables("deep_queue").queue
    assert 1_000 <= queue.length_max <= 1_024 and queue.full_launches > 300
    launches = [e for e in events("deep_queue") if "Launch" in e["name"]]
    slow = sum(ns(e["dur"]) for e in launches if e["dur"] > 100)
    assert queue.blocked_ns == pytest.approx(slow, rel=0.1)


def test_no_queue_is_full_where_the_host_is_late():
    queue = tables("stacks").queue
    assert queue.length_max < 10 and queue.full_launches == queue.blocked_ns == 0


def test_copies_have_the_bandwidth_of_their_bytes():
    upload = tables("stacks").copies[0]
    raw = [e for e in events("stacks") if e["name"] == "Memcpy HtoD (Pageable -> Device)"]
    assert (upload.kind, upload.count) == (raw[0]["name"], len(raw))
    assert upload.size_bytes == sum(e["args"]["bytes"] for e in raw)
    seconds = sum(ns(e["dur"]) for e in raw) / 1e9
    assert upload.bytes_per_s == pytest.approx(upload.size_bytes / seconds)


def test_the_peak_of_memory_is_the_allocators_own_and_all_of_it_has_an_owner():
    memory = tables("stacks").memory
    raw = [
        e["args"]
        for e in events("stacks")
        if e["name"] == "[memory]" and e["args"]["Device Type"] == 1
    ]
    assert (
        memory.peak_bytes == max(a["Total Allocated"] for a in raw) == max(memory.allocated_bytes)
    )
    assert memory.before_bytes + sum(row.size_bytes for row in memory.alive) == memory.peak_bytes
    assert memory.alive[0].name == "aten::linear"
    assert memory.before_bytes < raw[0]["Total Allocated"]


def test_ranges_are_grouped_and_parted_into_prefill_and_decode():
    decode, prefill = tables("serving").phases
    assert (decode.phase, decode.count, decode.tokens) == ("decode", 16, 8 * 16)
    assert (prefill.phase, prefill.count, prefill.tokens) == (
        "prefill",
        1,
        4096,
    )  # the first is start-up
    assert 2.5e5 < prefill.device_ns < decode.device_ns < 2e6
    forward = next(row for row in tables("stacks").annotations if row.name == "my forward")
    assert forward.count == 3 and 0.9 < forward.device_ns / 1.5e6 < 1.1


def test_what_autograds_thread_launches_belongs_to_the_backward_pass_that_waits_for_it():
    kernels = [K(20, 30, corr=1), K(40, 60, corr=2), K(70, 80, NCCL, corr=3)]
    calls = [C(2, 4, 1), C(12, 14, 2, tid=2), C(52, 54, 3, tid=2)]
    named = [("forward", 0, 9, 1), ("backward", 10, 90, 1), ("nccl:all_reduce", 50, 60, 2)]
    marks = [M(begun, end, MarkClass.ANNOTATION, name, tid=tid) for name, begun, end, tid in named]
    rows, _ = annotation_rows(facts_of(window(kernels, calls, marks, span=(0, 100))))
    assert {row.name: row.device_ns for row in rows} == {
        "forward": 10, "backward": 20, "nccl:all_reduce": 10,
    }  # fmt: skip


def test_a_live_run_has_the_ops_of_the_step_that_was_recorded_with_shapes():
    result = analyzed(scenarios()["healthy"]).tables
    assert result.ops_of_one_step and result.op_shapes
    product = result.ops[0]
    assert product.name == "aten::mm" and product.device_self_ns > 10e6
    assert product.launches >= product.count
    whole = sum(row.device_self_ns for row in result.ops)
    assert result.unattributed_ns is not None and result.unattributed_ns < 0.1 * whole


def test_the_report_shows_them_and_json_has_null_for_what_was_not_recorded():
    text = to_text(analyzed(trace("stacks")))
    for line in ("Ops by GPU time", "Modules", "Where the host was", "Memory at its peak"):
        assert line in text
    assert max(map(len, text.splitlines())) <= 80
    known = document(analyzed(trace("stacks")))["tables"]
    assert known["modules"][0]["name"] == "Net_0"
    assert known["memory"]["timeline"][0][1] > 0 and known["inference"] is None
    other = document(analyzed(trace("deep_queue")))["tables"]
    assert other["modules"] is other["memory"] is other["stalls"] is None
    json.dumps(known, allow_nan=False)


def test_a_row_of_copies_has_the_rate_of_their_table():
    """Images and labels go up in turn: the rate is of the bytes of both over the time of both."""
    snapshot = analyzed(replay.scenarios()["input-bound"])
    (row,) = (one for one in snapshot.estimate.kernels if one.name.startswith("Memcpy HtoD"))
    (copies,) = (one for one in snapshot.tables.copies if one.kind.startswith("Memcpy HtoD"))
    assert row.bytes_per_s == pytest.approx(copies.bytes_per_s, rel=0.01)
    assert row.bytes_per_s < 64e9, "no link of an H200's host is faster"
