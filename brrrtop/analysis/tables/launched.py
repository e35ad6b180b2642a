"""Device work beside the host's launches of it: the columns that all tables start from."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.estimate import Analysis
from brrrtop.analysis.kernels.labels import BUCKETS
from brrrtop.model import intervals
from brrrtop.model.estimate import Side
from brrrtop.model.tables import F8, I8, Bool, Window
from brrrtop.timeline.correlation import call_of


class DeviceWork(Struct, frozen=True, eq=False):
    """Columns of shape (n,), rows as in `Window.activities`."""

    window: Window
    durations_ns: I8
    """Clipped to the window."""
    call_rows: I8
    """Launching call; -1: unknown."""
    sides: I8
    """Into `BUCKETS`."""
    roof_shares: F8
    """Over the roof of its side; NaN: nobody knows."""

    @property
    def calls(self) -> tuple[I8, I8, I8, I8]:
        """The launches that are known.

        Returns:
            Rows of their activities, and threads, starts and ends (ns) of their calls; each (m,).
        """
        rows = np.flatnonzero(self.call_rows >= 0)
        at = self.call_rows[rows]
        table = self.window.calls
        return rows, table.tids[at], table.starts_ns[at], table.ends_ns[at]


def device_work(judged: Analysis) -> DeviceWork:
    """The activities of a window that was judged."""
    window, labels = judged.window, judged.labels
    acts, span = window.activities, window.span
    low, high = intervals.clip(acts.starts_ns, acts.ends_ns, span.t0_ns, span.t1_ns)
    shares = [group.share_of_own_roof for group in labels.groups]
    roofs = np.array([np.nan if one is None else min(one, 1.0) for one in shares], np.float64)
    return DeviceWork(
        window,
        high - low,
        judged.call_rows,
        labels.buckets.astype(np.int64),
        roofs[labels.group_of],
    )


def unjudged_work(window: Window) -> DeviceWork:
    """The activities of a window that nobody may judge: durations and launches, no sides and no roofs."""
    acts = window.activities
    nothing = np.full(len(acts), BUCKETS.index(Side.UNKNOWN.value), np.int64)
    return DeviceWork(
        window, acts.ends_ns - acts.starts_ns, call_of(acts, window.calls, window.observed),
        nothing, np.full(len(acts), np.nan),
    )  # fmt: skip


def with_ancestors(own: F8 | I8, parents: I8) -> F8:
    """Each row's own amount and that of all below it.

    Args:
        own: Shape (n,) or (n, k), of rows in which a parent comes before what it holds.
        parents: -1: none.
    """
    total: F8 = own.astype(np.float64)
    depths = depths_of(parents)
    for depth in range(int(depths.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depths == depth)
        np.add.at(total, parents[rows], total[rows])
    return total


def depths_of(parents: I8) -> I8:
    """0 for outermost rows."""
    depths = np.zeros(len(parents), np.int64)
    at, rows = parents.copy(), np.flatnonzero(parents >= 0)
    while len(rows):
        depths[rows] += 1
        at[rows] = parents[at[rows]]
        rows = rows[at[rows] >= 0]
    return depths


def nested_in_same(parents: I8, keys: I8) -> Bool:
    """Rows with another row of the same key around them."""
    inside = np.zeros(len(parents), np.bool_)
    at, rows = parents.copy(), np.flatnonzero(parents >= 0)
    while len(rows):
        inside[rows] |= keys[at[rows]] == keys[rows]
        at[rows] = parents[at[rows]]
        rows = rows[(at[rows] >= 0) & ~inside[rows]]
    return inside


def sums(keys: I8, size: int, values: I8 | F8) -> I8:
    """Summed values by key, as integers."""
    return np.rint(np.bincount(keys, values, size)).astype(np.int64)


def sides_by(keys: I8, size: int, work: DeviceWork, rows: I8) -> I8:
    """Shape (size, sides): device time of activities by key and side."""
    flat = keys * len(BUCKETS) + work.sides[rows]
    return sums(flat, size * len(BUCKETS), work.durations_ns[rows]).reshape(size, len(BUCKETS))


def named_sides(row: I8) -> dict[str, int]:
    """The sides that have any time."""
    return {side: int(ns) for side, ns in zip(BUCKETS, row.tolist(), strict=True) if ns}
