"""The sweep line: charges every busy nanosecond of one device exactly once.

Amounts are kept as integers of 2^-20 ns, so that any cut of a window adds up to the whole; only
the finished buckets are rounded, by largest remainder, and their sum is exact. Sums of them are
Python's integers: 2^43 ns, two and a half hours of busy time, is all that 64 bits would hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brrrtop.analysis.kernels.labels import COMM, TRANSFER, WORK, Labels
from brrrtop.model import intervals

I8 = npt.NDArray[np.int64]
F8 = npt.NDArray[np.float64]

FINE = 1 << 20
BUCKETS = ("compute", "memory", "underfilled", "unknown", "comm", "copy")


@dataclass(frozen=True, slots=True, eq=False)
class Charges:
    """What the sweep found."""

    buckets_ns: dict[str, int]
    busy: tuple[I8, I8]
    """Union of all activity, merged."""


def _fractions(labels: Labels) -> npt.NDArray[np.int64]:
    """Fixed-point shares (n, 4) of compute, memory, underfilled, unknown; rows add up to FINE."""
    under = np.rint(labels.underfilled * FINE)
    rest = FINE - under
    unknown = np.rint(rest * labels.unknown)
    compute = np.rint((rest - unknown) * labels.compute)
    memory = rest - unknown - compute
    return np.stack((compute, memory, under, unknown), axis=1).astype(np.int64)


def charge(starts: I8, ends: I8, labels: Labels) -> Charges:
    """Buckets of activities already clipped to the window.

    Kernels come before collectives and collectives before copies where they overlap; kernels that
    overlap share the time by the SMs they reach.

    Args:
        starts, ends: Shape (n,), sorted by start, empty intervals allowed.
        labels: Of the same activities.
    """
    keep = np.flatnonzero(ends > starts)
    starts, ends = starts[keep], ends[keep]
    fine = [0] * len(BUCKETS)
    busy = intervals.merge(starts, ends)
    if len(starts):
        classes = labels.classes[keep]
        fractions = _fractions(labels)[keep]
        alone = _alone(starts, ends)
        durations = ends - starts
        work = alone & (classes == WORK)
        fine[:4] = _weigh(durations[work], fractions[work])
        fine[4] = int(durations[alone & (classes == COMM)].sum()) * FINE
        fine[5] = int(durations[alone & (classes == TRANSFER)].sum()) * FINE
        crowd = np.flatnonzero(~alone)
        if len(crowd):
            shared = _crowd(
                starts[crowd],
                ends[crowd],
                classes[crowd],
                fractions[crowd],
                labels.weights[keep][crowd],
            )
            fine = [one + more for one, more in zip(fine, shared, strict=True)]
    return Charges(_whole(fine, intervals.total(*busy)), busy)


def _weigh(durations: I8, fractions: I8) -> list[int]:
    """`durations @ fractions`, exact for any sum of durations below 2^62."""
    shift = max(0, int(durations.sum()).bit_length() - 42)
    high = (durations >> shift) @ fractions
    low = (durations & ((1 << shift) - 1)) @ fractions
    return [(int(h) << shift) + int(one) for h, one in zip(high, low, strict=True)]


def _alone(starts: I8, ends: I8) -> npt.NDArray[np.bool_]:
    """Which intervals overlap no other."""
    reach = np.maximum.accumulate(ends)
    alone = np.ones(len(starts), np.bool_)
    overlap = starts[1:] < reach[:-1]
    alone[1:] &= ~overlap
    alone[:-1] &= ~overlap
    # One that began earlier may still be open past its direct successor.
    inside = reach[:-1] > ends[:-1]
    alone[:-1] &= ~inside
    return alone


def _crowd(
    starts: I8, ends: I8, classes: npt.NDArray[np.int8], fractions: I8, weights: F8
) -> list[int]:
    points = intervals.distinct(np.concatenate((starts, ends)))
    lengths = np.diff(points)
    low, high = np.searchsorted(points, starts), np.searchsorted(points, ends)

    def open_sum(values: F8) -> F8:
        steps = np.bincount(low, values, len(points)) - np.bincount(high, values, len(points))
        return np.cumsum(steps)[:-1]

    work = (classes == WORK).astype(np.float64)
    open_work = np.rint(open_sum(work)) > 0
    open_comm = np.rint(open_sum((classes == COMM).astype(np.float64))) > 0
    open_copy = np.rint(open_sum((classes == TRANSFER).astype(np.float64))) > 0
    fine = [0] * len(BUCKETS)
    fine[4] = int(lengths[~open_work & open_comm].sum()) * FINE
    fine[5] = int(lengths[~open_work & ~open_comm & open_copy].sum()) * FINE
    weighted = work * weights
    total = np.where(open_work, open_sum(weighted), 1.0)
    shares = [
        np.where(open_work, open_sum(weighted * fractions[:, k]) / np.maximum(total, 1e-12), 0.0)
        for k in range(4)
    ]
    amounts = [int(np.rint(lengths * np.clip(share, 0, FINE)).sum()) for share in shares]
    whole = int(lengths[open_work].sum()) * FINE
    amounts[int(np.argmax(amounts))] += whole - sum(amounts)
    fine[:4] = amounts
    return fine


def _whole(fine: list[int], total_ns: int) -> dict[str, int]:
    """Rounded buckets that add up to `total_ns`."""
    floors = [amount >> 20 for amount in fine]
    missing = max(0, total_ns - sum(floors))
    order = sorted(range(len(fine)), key=lambda k: (floors[k] << 20) - fine[k])
    each, more = divmod(missing, len(fine))  # `each` is 0, or times make no sense
    for place, k in enumerate(order):
        floors[k] += each + (place < more)
    return dict(zip(BUCKETS, floors, strict=True))
