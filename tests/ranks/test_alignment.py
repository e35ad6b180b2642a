"""Clocks of ranks put on one by their collectives: bursts that begin at different times, other clocks."""

import numpy as np
import pytest

from brrrtop.analysis.facts.collectives import UNKNOWN_SIZE, Collectives
from brrrtop.analysis.ranks.matching import offset_of
from brrrtop.model.intervals import EMPTY, Cover

MS = 1_000_000
BURST_NS, EVERY_NS = 100 * MS, 3_000 * MS


def recorded(late_ns: int, ahead_ns: int = 0, every_ns: int = 5 * MS) -> Collectives:
    """One rank's: bursts of 100 ms every three seconds, which begin so late, by a clock so much ahead."""
    starts = late_ns + EVERY_NS * np.arange(4)
    ends = np.arange(0, 13_000 * MS, every_ns)
    inside = ((ends[:, None] >= starts) & (ends[:, None] <= starts + BURST_NS)).any(axis=1)
    ends = ends[inside] + ahead_ns
    same = np.zeros(len(ends), np.int64)
    spans = starts + ahead_ns, starts + BURST_NS + ahead_ns
    size = np.full(len(ends), UNKNOWN_SIZE)
    op_names = ("",) * len(ends)
    return Collectives(
        ends - MS, ends, same, size, same, op_names, same, Cover(EMPTY, EMPTY), spans
    )


@pytest.mark.parametrize("late_ms", [0, 40, 80])
def test_bursts_that_overlap_little_are_compared_where_they_do(late_ms):
    assert offset_of(recorded(0), recorded(late_ms * MS), same_clock=True) == 0


def test_bursts_that_never_overlap_are_not_compared():
    assert offset_of(recorded(0), recorded(120 * MS), same_clock=True) is None


def test_other_collectives_at_the_same_time_are_not_compared():
    assert offset_of(recorded(0), recorded(80 * MS, 0, 7 * MS), same_clock=True) is None
