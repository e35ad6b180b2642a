"""Sides of kernels beside Nsight Compute's counters of an H200 (`benchmarks.truth`).

The margins are the promise, not the figures reached: those are in the table that the program prints.
"""

import os
from pathlib import Path

import pytest

from benchmarks import calibration
from benchmarks.truth import Score, scores

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings"
FOLDERS = {
    "h200": RECORDINGS / "h200",
    "counted": RECORDINGS / "counted",
    "traces": Path(os.environ.get("BRRRTOP_TRACES") or "/nonexistent"),
}
"""First kernels of a step; whole steps, counted by CUPTI; traces with Nsight Compute's own figures."""
MISSED = {"birdsong_multires": 25.0, "audiotext_barlow": 10.0}
"""Points they are off: a direct convolution at 0.5 % of both roofs keeps the CUDA cores busy with something else
than its products, and convolutions just below the ridge."""
LEAST_TOLD = 0.25
"""Of a step: fewer counted kernels say nothing of its split."""


@pytest.fixture(scope="module", params=FOLDERS)
def counted(request) -> list[Score]:
    folder = FOLDERS[request.param]
    if not folder.is_dir():
        pytest.skip("BRRRTOP_TRACES names no traces")
    result = list(scores(folder))
    assert sum(one.coverage >= LEAST_TOLD for one in result) >= 4
    return result


def test_the_split_is_that_of_the_counters(counted):
    chosen_counted = [one for one in counted if one.coverage >= LEAST_TOLD]
    for one in chosen_counted:
        most = MISSED.get(one.name, 5.0 if one.coverage >= 0.95 else 10.0)
        assert one.error <= most, (one.name, one.ours, one.truth)
    assert sorted(one.error for one in chosen_counted)[len(chosen_counted) // 2] <= 1.0


def test_no_time_of_families_that_move_elements_is_called_compute(counted):
    assert {one.name: one.moved for one in counted if one.moved} == {}


def test_verdict_bar_and_rows_agree(counted):
    for one in counted:
        result = one.judged.estimate
        shares = {name: getattr(result.split, name) for name in ("compute", "memory", "overhead")}
        if result.regime.value in shares:
            assert result.regime.value == max(shares, key=lambda name: shares[name]), one.name
        assert all((row.roof_share is None) == bool(row.roof_share_why) for row in result.kernels)


def test_sure_verdicts_on_counted_recordings_are_right():
    points = list(calibration.counted([calibration.RECORDINGS / "counted"]))
    sure = [one for one in points if one.confidence >= 0.95]
    assert len(points) >= 10 and sure
    assert sum(one.right for one in sure) >= 0.95 * len(sure), calibration.table(points)
