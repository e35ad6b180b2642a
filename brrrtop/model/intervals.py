"""Half-open integer intervals: merge, cover, clip. No domain words.

All arrays are int64 of shape (n,). "Sorted" means by start. "Merged" means sorted, disjoint and
not touching.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I8 = npt.NDArray[np.int64]
EMPTY: I8 = np.empty(0, np.int64)


def merge(starts: I8, ends: I8) -> tuple[I8, I8]:
    """The union of sorted intervals as merged ones; empty intervals vanish."""
    keep = ends > starts
    if not keep.all():
        starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return EMPTY, EMPTY
    reach = np.maximum.accumulate(ends)
    first = np.empty(len(starts), np.bool_)
    first[0] = True
    np.greater(starts[1:], reach[:-1], out=first[1:])
    at = np.flatnonzero(first)
    last = np.append(at[1:] - 1, len(starts) - 1)
    return starts[at], reach[last]


def merge_unsorted(starts: I8, ends: I8) -> tuple[I8, I8]:
    """The union of intervals in any order."""
    order = np.argsort(starts, kind="stable")
    return merge(starts[order], ends[order])


def clip(starts: I8, ends: I8, low: int, high: int) -> tuple[I8, I8]:
    """Each interval's part in `[low, high)`; those outside become empty, none is dropped."""
    clipped = np.clip(starts, low, high)
    return clipped, np.maximum(np.clip(ends, low, high), clipped)


def holders(starts: I8, ends: I8, times: I8) -> I8:
    """Row of the sorted, disjoint interval that each time lies in; -1: in none."""
    at = np.searchsorted(starts, times, "right") - 1
    if not len(starts):
        return at
    return np.where((at >= 0) & (times < ends[np.maximum(at, 0)]), at, -1)


def total(starts: I8, ends: I8) -> int:
    """Summed length."""
    return int((ends - starts).sum())


class Cover:
    """How much of `[-inf, t)` merged intervals cover, for many `t` at once."""

    def __init__(self, starts: I8, ends: I8) -> None:
        self.starts, self.ends = starts, ends
        self._before = np.concatenate(([0], np.cumsum(ends - starts))).astype(np.int64)

    def up_to(self, times: I8) -> I8:
        """Covered length before each time, shape of `times`."""
        if not len(self.starts):
            return np.zeros(np.shape(times), np.int64)
        at = np.searchsorted(self.starts, times, "right")
        prior = np.maximum(at - 1, 0)
        inside = np.minimum(times, self.ends[prior]) - self.starts[prior]
        return np.where(at > 0, self._before[prior] + inside, 0)

    def between(self, lows: I8, highs: I8) -> I8:
        """Covered length within each `[low, high)`."""
        return self.up_to(highs) - self.up_to(lows)


def distinct(times: I8) -> I8:
    """The different times, sorted; several times faster than `np.unique` on nearly sorted ones."""
    ordered = np.sort(times, kind="stable")
    keep = np.ones(len(ordered), np.bool_)
    keep[1:] = ordered[1:] != ordered[:-1]
    return ordered[keep]


def subtract(starts: I8, ends: I8, holes: tuple[I8, I8]) -> tuple[I8, I8]:
    """Merged intervals less merged `holes`, as merged intervals."""
    if not len(starts) or not len(holes[0]):
        return starts, ends
    points = distinct(np.concatenate((starts, ends, holes[0], holes[1])))
    lows, highs = points[:-1], points[1:]
    inside = Cover(starts, ends).between(lows, highs) > 0
    outside = Cover(*holes).between(lows, highs) == 0
    keep = inside & outside
    return merge(lows[keep], highs[keep])


def paint(layers: list[tuple[I8, I8]]) -> list[tuple[I8, I8]]:
    """Each layer (merged) less all the layers before it: disjoint in the end."""
    painted: list[tuple[I8, I8]] = []
    taken: tuple[I8, I8] = (EMPTY, EMPTY)
    for starts, ends in layers:
        painted.append(subtract(starts, ends, taken))
        taken = merge_unsorted(np.concatenate((taken[0], starts)), np.concatenate((taken[1], ends)))
    return painted


def latest_before(keys: I8, starts: I8, wanted: I8, times: I8) -> I8:
    """For each wanted key the row of that key that starts last before its time, or else first; -1: none.

    Args:
        keys: Of the rows, any order, with their `starts`.
        wanted: Keys, with their `times`.
    """
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    order = np.lexsort((starts, keys))
    keys, starts = keys[order], starts[order]
    first = np.searchsorted(keys, wanted, "left")
    last = np.searchsorted(keys, wanted, "right")
    # Bisects the rows of each key by time: a minute of bursts can give a key to many.
    low, high = first.copy(), last
    while (among := low < high).any():
        middle = (low + high) // 2
        before = among & (starts[np.minimum(middle, len(starts) - 1)] <= times)
        low = np.where(before, middle + 1, low)
        high = np.where(among & ~before, middle, high)
    rows = order[np.minimum(np.maximum(low - 1, first), len(order) - 1)]
    return np.where(first < last, rows, -1)
