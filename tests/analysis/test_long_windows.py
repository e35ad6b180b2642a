"""Accounts of hours and days are as exact as those of milliseconds, and as quick."""

from __future__ import annotations

import numpy as np
import pytest

from brrrtop.analysis.account.account import charge
from brrrtop.analysis.facts.labels import BUCKETS, Labels
from brrrtop.model import intervals

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def labels(*buckets: str) -> Labels:
    count = len(buckets)
    return Labels(
        np.zeros(count, np.int64), (), np.array([BUCKETS.index(b) for b in buckets], np.int8),
        np.ones(count),
    )  # fmt: skip


@pytest.mark.parametrize("hours", [0.001, 2, 3, 24, 24 * 30, 24 * 365 * 50])
def test_kernels_of_any_length_are_charged_to_the_nanosecond(hours: float) -> None:
    span = int(hours * HOUR)
    alone = charge(np.array([5]), np.array([5 + span]), labels("compute"))
    assert alone["compute"] == sum(alone.values()) == span
    starts, ends = np.array([5, 6]), np.array([5 + span, 5 + span])
    shared = charge(starts, ends, labels("compute", "memory"))
    assert sum(shared.values()) == span
    assert shared["memory"] == pytest.approx(span / 2, abs=2, rel=1e-15)


def test_hours_of_kernels_copies_and_collectives_add_up() -> None:
    starts = np.arange(40, dtype=np.int64) * HOUR
    ends = starts + HOUR + np.where(np.arange(40) % 3, -7, 11)
    charges = charge(starts, ends, labels(*["compute", "comm", "copy", "unknown"] * 10))
    assert sum(charges.values()) == intervals.total(*intervals.merge(starts, ends))
    used = {name for name, value in charges.items() if value > HOUR}
    assert used == {"compute", "comm", "copy", "unknown"}
    assert set(charges) == set(BUCKETS)
