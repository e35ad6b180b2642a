"""Verdicts called 95 % sure are right 95 times of 100, on what was counted and is in the repository."""

from __future__ import annotations

from benchmarks.calibration import LABELS, RECORDINGS, counted, table


def test_sure_verdicts_on_counted_recordings_are_right() -> None:
    points = list(counted([RECORDINGS / "counted"]))
    sure = [one for one in points if one.confidence >= 0.95]
    assert len(points) >= 10 and sure
    assert sum(one.right for one in sure) >= 0.95 * len(sure), table(points)


def test_labels_name_a_verdict_each_trace_once() -> None:
    rows = [line.split(",") for line in LABELS.read_text("utf-8").splitlines()[1:]]
    assert len({(row[0], row[1]) for row in rows}) == len(rows) >= 50
    verdicts = {"compute", "memory", "overhead", "mixed", "unknown", "start-up"}
    assert {row[2] for row in rows} <= verdicts
