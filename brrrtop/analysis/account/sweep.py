"""The sweep line: charges every busy nanosecond of one device exactly once."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.kernels.labels import BUCKETS, COMM, TRANSFER, WORK, Labels
from brrrtop.model import intervals
from brrrtop.model.tables import F8, I8, Bool


class Charges(Struct, frozen=True, eq=False):
    """What the sweep found."""

    buckets_ns: dict[str, int]
    busy: tuple[I8, I8]
    """Union of all activity, merged; the buckets add up to it."""


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
    part = labels.take(keep)
    alone = _alone(starts, ends)
    times = [int((ends - starts)[alone & (part.buckets == k)].sum()) for k in range(len(BUCKETS))]
    crowd = np.flatnonzero(~alone)
    if len(crowd):
        shared = _crowd(starts[crowd], ends[crowd], part.take(crowd))
        times = [one + more for one, more in zip(times, shared, strict=True)]
    return Charges(dict(zip(BUCKETS, times, strict=True)), intervals.merge(starts, ends))


def _alone(starts: I8, ends: I8) -> Bool:
    """Which intervals overlap no other."""
    alone = np.ones(len(starts), np.bool_)
    if len(starts):
        reach = np.maximum.accumulate(ends)
        overlap = starts[1:] < reach[:-1]
        alone[1:] &= ~overlap
        # One that began earlier may still be open past its direct successor.
        alone[:-1] &= ~overlap & (reach[:-1] == ends[:-1])
    return alone


def _crowd(starts: I8, ends: I8, labels: Labels) -> list[int]:
    """Time by bucket of intervals that overlap."""
    points = intervals.distinct(np.concatenate((starts, ends)))
    lengths = np.diff(points)
    low, high = np.searchsorted(points, starts), np.searchsorted(points, ends)

    def open_sum(values: F8) -> F8:
        steps = np.bincount(low, values, len(points)) - np.bincount(high, values, len(points))
        return np.cumsum(steps)[:-1]

    work, comm, copy = (
        np.rint(open_sum((labels.classes == one).astype(np.float64))) > 0
        for one in (WORK, COMM, TRANSFER)
    )
    weights = np.where(labels.classes == WORK, labels.weights, 0.0)
    whole = np.maximum(open_sum(weights), 1e-12)
    times = []
    for bucket in range(BUCKETS.index("comm")):
        shares = np.clip(open_sum(np.where(labels.buckets == bucket, weights, 0.0)) / whole, 0, 1)
        times.append(int((lengths * np.where(work, shares, 0.0)).sum()))  # `@` is slow for integers
    # What rounding leaves is nobody's: the largest takes it, and the sum is exact.
    times[int(np.argmax(times))] += int(lengths[work].sum()) - sum(times)
    return [*times, int(lengths[~work & comm].sum()), int(lengths[~work & ~comm & copy].sum())]
