"""Planted stalls get the share of time that the script itself measured, on recordings of an H200."""

from __future__ import annotations

import pytest

from benchmarks import stalls
from brrrtop.cli.demo import scenarios


def _row(demo: str) -> stalls.Row:
    return stalls.row(demo, stalls.DEMOS[demo], scenarios()[demo], stalls.meters(None))


@pytest.mark.parametrize("demo", ["input-bound", "unpinned-copies"])
def test_a_planted_stall_is_booked_within_five_points_of_the_scripts_own_meter(demo: str) -> None:
    row = _row(demo)
    assert row.meter is not None and row.off is not None
    assert abs(row.off) <= stalls.CLOSE, row
    assert row.booked > 0.85


def test_what_was_not_recorded_leaves_no_idle_time_unexplained() -> None:
    """Memsets bring no calls, and ids start anew with each burst: neither may show as idle time."""
    for demo in ("sync-bound", "launch-bound"):
        account = stalls.judged(scenarios()[demo]).estimate.account
        nobody = account.idle_ns["unknown"] + account.idle_ns["device"]
        assert nobody / account.duration_ns < 0.02, demo


def test_waits_for_values_read_back_are_booked_where_the_queue_had_to_fill_again() -> None:
    account = stalls.judged(scenarios()["sync-bound"]).estimate.account
    assert 0.08 < account.idle_ns["sync"] / account.duration_ns < 0.25


def test_the_table_names_what_is_off() -> None:
    row = _row("input-bound")
    assert "| slow_loader | input-bound | 118.3 ms |" in "\n".join(stalls.table([row]))
    assert stalls.main([]) == 0
