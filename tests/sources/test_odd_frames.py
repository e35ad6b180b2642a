"""Frames whose numbers cannot be: nothing raises, hangs or grows with them, and the rest is judged."""

from typing import Any

import numpy as np
import pytest

from brrrtop.model.tables import Span
from brrrtop.scheduling.requests import disturbances
from brrrtop.timeline import timeline as timelines
from brrrtop.timeline.op_shapes import StepShapes, insert
from brrrtop.timeline.timeline import Timeline
from collectors.protocol.frames import (
    CALL,
    COPY,
    DTYPES,
    GAUGE,
    KERNEL,
    MARK,
    OBSERVED,
    Frame,
    Kind,
)
from collectors.vocabulary import MarkClass, Metric  # fmt: skip

SECOND = 1_000_000_000
NOW = 1_790_857_026 * SECOND
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
IMPOSSIBLE = [
    (NOW, NOW - 1), (NOW, HIGHEST), (LOWEST, HIGHEST), (LOWEST, NOW), (HIGHEST, HIGHEST),
    (0, 10), (NOW, NOW + 2 * 86_400 * SECOND), (-5, 5), (NOW * 2, NOW * 2 + 1),
]  # fmt: skip


def kernels(*spans: tuple[int, int], **fields: Any) -> np.ndarray:
    """Kernel records of the given spans."""
    rows = np.zeros(len(spans), KERNEL)
    rows["start_ns"], rows["end_ns"] = np.array(spans, np.int64).reshape(-1, 2).T
    rows["grid"], rows["block"] = (132, 1, 1), (128, 1, 1)
    for name, value in fields.items():
        rows[name] = value
    return rows


def marks(mark_class: MarkClass, *spans: tuple[int, int]) -> np.ndarray:
    """Mark records of one class."""
    rows = np.zeros(len(spans), MARK)
    rows["start_ns"], rows["end_ns"] = np.array(spans, np.int64).reshape(-1, 2).T
    rows["mark_class"] = mark_class
    return rows


@pytest.mark.parametrize(("start", "end"), IMPOSSIBLE)
def test_a_kernel_at_an_impossible_time_is_counted_as_lost(start, end):
    timeline = Timeline()
    timeline.add(Frame(Kind.LOSS, {"records": 2}, NOW))
    timeline.add(Frame(Kind.KERNELS, kernels((NOW, NOW + 1000), (start, end)), NOW))
    assert (timeline.first_ns, timeline.last_ns) == (NOW, NOW + 1000)
    assert timeline.losses == {"records": 3}


@pytest.mark.parametrize("kind", sorted(DTYPES))
def test_records_of_any_bits_are_taken_in(kind):
    chance = np.random.default_rng(kind)
    timeline = Timeline()
    timeline.add(Frame(Kind.KERNELS, kernels((NOW, NOW + 1000)), NOW))
    for _ in range(50):
        rows = chance.integers(0, 256, 64 * DTYPES[kind].itemsize).astype(np.uint8)
        timeline.add(Frame(kind, rows.view(DTYPES[kind]), NOW))
    window = timeline.window(Span(NOW, NOW + 2000), 0)
    assert len(window.activities) == 1
    assert timeline.newest_ns == NOW


def test_calls_copies_and_gauges_that_cannot_be_are_left_out():
    timeline = Timeline()
    timeline.add(Frame(Kind.KERNELS, kernels((NOW, NOW + 1000)), NOW))
    for dtype, kind in ((CALL, Kind.CALLS), (COPY, Kind.COPIES)):
        rows = np.zeros(len(IMPOSSIBLE), dtype)
        rows["start_ns"], rows["end_ns"] = np.array(IMPOSSIBLE, np.int64).T
        timeline.add(Frame(kind, rows, NOW))
    readings = [(NOW, value, 0, Metric.POWER_WATT) for value in (np.nan, np.inf, -np.inf, 350.0)]
    timeline.add(Frame(Kind.GAUGES, np.array([*readings, (0, 1.0, 0, 4)], GAUGE), NOW))
    window = timeline.window(Span(NOW, NOW + 1), 0)
    assert len(window.calls) == 0 and len(window.activities) == 1
    assert window.gauges.values.tolist() == [350.0]


def test_a_grid_beyond_64_bits_stays_positive():
    timeline = Timeline()
    huge = kernels((NOW, NOW + 1000), grid=(1 << 30, 1 << 30, 1 << 30), block=(1 << 30,) * 3)
    timeline.add(Frame(Kind.KERNELS, huge, NOW))
    acts = timeline.window(Span(NOW, NOW + 1000), 0).activities
    assert acts.blocks[0] > 0 and acts.threads[0] > 0


def test_reversed_recordings_of_shapes_disturb_nothing():
    timeline = Timeline()
    timeline.add(Frame(Kind.OBSERVED, np.array([(NOW, NOW + SECOND, 0, 0)], OBSERVED), NOW))
    rows = marks(
        MarkClass.PERTURBED, *[(NOW + SECOND // 2, NOW - k * SECOND) for k in range(1, 30)]
    )
    assert disturbances(rows) == []
    timeline.add(Frame(Kind.MARKS, rows, NOW))
    assert timeline.observed == [Span(NOW, NOW + SECOND)]


def test_what_is_undisturbed_never_exceeds_what_was_traced():
    chance = np.random.default_rng(3)
    for _ in range(200):
        shapes = StepShapes()
        spans: list[Span] = []
        for t0, length in chance.integers(1, 100, (12, 2)).tolist():
            insert(spans, Span(t0, t0 + length))
        for t0, length in chance.integers(1, 100, (chance.integers(0, 12), 2)).tolist():
            insert(shapes.cuts, Span(t0, t0 + length // 8))
        left = {t for span in shapes.undisturbed(spans) for t in range(span.t0_ns, span.t1_ns)}
        covered = {t for span in spans for t in range(span.t0_ns, span.t1_ns)}
        cut = {t for span in shapes.cuts for t in range(span.t0_ns, span.t1_ns)}
        assert left == covered - cut
        times = np.arange(220)
        assert set(times[shapes.disturbed(times)].tolist()) == cut


def test_many_bursts_in_any_order_stay_sorted_and_disjoint():
    chance = np.random.default_rng(1)
    timeline = Timeline()
    for t0 in chance.permutation(20_000).tolist():
        row = (NOW + 10 * t0, NOW + 10 * t0 + 1 + t0 % 10, 0, 0)
        timeline.add(Frame(Kind.OBSERVED, np.array([row], OBSERVED), NOW))
    assert timeline.traced is not None and len(timeline.traced) == 18_001
    assert all(
        a.t1_ns < b.t0_ns for a, b in zip(timeline.traced, timeline.traced[1:], strict=False)
    )


def test_a_name_of_any_id_costs_no_more_than_the_names_there_may_be():
    timeline = Timeline()
    timeline.add(Frame(Kind.NAMES, {0xFFFFFFFF: "x", 7: "gemm"}, NOW))
    timeline.add(Frame(Kind.NAMES, {timelines.MOST_NAMES - 1: "last"}, NOW))
    assert timeline._wire_ids.nbytes <= 16 * timelines.MOST_NAMES
    ids = np.array([7, timelines.MOST_NAMES - 1, 0xFFFFFFFF, 3])
    rows = kernels(*[(NOW, NOW + 1)] * 4, name_id=ids)
    timeline.add(Frame(Kind.KERNELS, rows, NOW))
    acts = timeline.window(Span(NOW, NOW + 1), 0).activities
    assert [timeline.names[i] for i in acts.name_ids] == ["gemm", "last", "", ""]


def test_names_without_end_are_not_kept(monkeypatch):
    monkeypatch.setattr(timelines, "MOST_NAMES", 1000)
    timeline = Timeline()
    for start in range(0, 5000, 100):
        names = {k % 999: f"name {k}" for k in range(start, start + 100)}
        timeline.add(Frame(Kind.NAMES, names, NOW))
    assert len(timeline.names) == 1000


def test_a_clock_that_falls_does_not_blank_a_live_timeline():
    timeline = Timeline(keep_ns=120 * SECOND)
    timeline.add(Frame(Kind.NAMES, {1: "gemm"}, NOW))
    for at in (NOW, NOW - 3600 * SECOND, NOW - 3599 * SECOND):
        timeline.add(Frame(Kind.KERNELS, kernels((at, at + 1000), name_id=1), at))
    now = NOW - 3599 * SECOND
    assert timeline.newest_ns == now
    assert timeline.first_ns == NOW - 3600 * SECOND
    acts = timeline.window(Span(now - SECOND, now + 1000), 0).activities
    assert len(acts) == 2 and timeline.names[acts.name_ids[0]] == "gemm"


def test_one_frame_of_the_far_future_does_not_blank_a_live_timeline():
    timeline = Timeline(keep_ns=120 * SECOND)
    timeline.add(Frame(Kind.STATUS, {"says": "hello"}, 1 << 62))
    timeline.add(Frame(Kind.KERNELS, kernels((NOW, NOW + 1000)), NOW))
    timeline.add(Frame(Kind.STATUS, {"says": "hello"}, NOW + SECOND))
    assert timeline.activity_count(Span(NOW, NOW + SECOND)) == 1


def test_a_finished_source_is_kept_whole_whatever_its_clock_did():
    timeline = Timeline()
    for at in (NOW, NOW - 3600 * SECOND):
        timeline.add(Frame(Kind.KERNELS, kernels((at, at + 1000)), at))
    assert timeline.activity_count(Span(0, 2 * NOW)) == 2
