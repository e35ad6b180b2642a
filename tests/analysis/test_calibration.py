"""Verdicts called 95 % sure are right 95 times of 100, on what was counted and is in the repository."""

from __future__ import annotations

from benchmarks.calibration import RECORDINGS, counted, table


def test_sure_verdicts_on_counted_recordings_are_right() -> None:
    points = list(counted([RECORDINGS / "counted"]))
    sure = [one for one in points if one.confidence >= 0.95]
    assert len(points) >= 10 and sure
    assert sum(one.right for one in sure) >= 0.95 * len(sure), table(points)
