"""Sides of kernels beside Nsight Compute's counters of an H200 (`benchmarks.truth`).

The margins are the promise, not the figures reached: those are in the table that the program prints.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.truth import Score, scores

RECORDINGS = Path(__file__).resolve().parents[1] / "recordings" / "h200"
LEAST_TOLD = 0.25
"""Of a step: fewer counted kernels say nothing of its split."""


@pytest.fixture(scope="module", params=["recordings", "traces"])
def counted(request: pytest.FixtureRequest) -> list[Score]:
    named = os.environ.get("BRRRTOP_TRACES")
    if request.param == "traces" and not named:
        pytest.skip("BRRRTOP_TRACES names no traces")
    found = list(scores(Path(named or "") if request.param == "traces" else RECORDINGS))
    assert sum(one.coverage >= LEAST_TOLD for one in found) >= 4
    return found


def test_the_split_is_that_of_the_counters(counted: list[Score]) -> None:
    told = [one for one in counted if one.coverage >= LEAST_TOLD]
    for one in told:
        assert one.error <= (5.0 if one.coverage >= 0.95 else 10.0), (one.name, one.ours, one.truth)
    assert sum(one.error for one in told) / len(told) <= 3.0


def test_no_time_of_families_that_move_elements_is_called_compute(counted: list[Score]) -> None:
    assert {one.name: one.moved for one in counted if one.moved} == {}


def test_verdict_bar_and_rows_agree(counted: list[Score]) -> None:
    for one in counted:
        found = one.judged.estimate
        shares = {name: getattr(found.split, name) for name in ("compute", "memory", "overhead")}
        if found.regime.value in shares:
            assert found.regime.value == max(shares, key=lambda name: shares[name]), one.name
        assert all((row.roof_share is None) == bool(row.roof_share_why) for row in found.kernels)
