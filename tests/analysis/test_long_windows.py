"""Accounts of hours and days are as exact as those of milliseconds, and as quick."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from brrrtop.analysis.account.sweep import BUCKETS, FINE, charge
from brrrtop.analysis.kernels.labels import COMM, TRANSFER, WORK, Labels

SECOND = 1_000_000_000
HOUR = 3600 * SECOND


def labels(count: int, classes: int | np.ndarray = WORK) -> Labels:
    """Two thirds compute, a sixth unknown."""
    share = np.ones(count)
    return Labels(
        group_of=np.zeros(count, np.int64), groups=(),
        classes=np.broadcast_to(np.asarray(classes, np.int8), count).copy(),
        underfilled=share * 0.0, unknown=share / 6, compute=share * 0.8, weights=share,
    )  # fmt: skip


@pytest.mark.parametrize("hours", [0.001, 2, 3, 24, 24 * 30, 24 * 365 * 50])
def test_a_kernel_of_any_length_is_charged_to_the_nanosecond(hours: float) -> None:
    span = int(hours * HOUR)
    charges = charge(np.array([5]), np.array([5 + span]), labels(1))
    assert sum(charges.buckets_ns.values()) == span
    unknown = Fraction(round(FINE / 6), FINE)
    compute = Fraction(round((FINE - round(FINE / 6)) * 0.8), FINE)
    assert abs(charges.buckets_ns["unknown"] - span * unknown) <= 1
    assert abs(charges.buckets_ns["compute"] - span * compute) <= 1


def test_hours_of_kernels_copies_and_collectives_add_up() -> None:
    starts = np.arange(40, dtype=np.int64) * HOUR
    ends = starts + HOUR + np.where(np.arange(40) % 3, -7, 11)
    classes = np.array([WORK, COMM, TRANSFER, WORK] * 10)
    charges = charge(starts, ends, labels(40, classes))
    assert sum(charges.buckets_ns.values()) == int((charges.busy[1] - charges.busy[0]).sum())
    assert all(value > HOUR for name, value in charges.buckets_ns.items() if name != "underfilled")
    assert set(charges.buckets_ns) == set(BUCKETS)
