"""Runs of consecutive memory-side kernels on a stream, and what fusing them could save at most.

A chain is broken by anything that is no pointwise, norm, reduction or softmax kernel. Its fused
cost is never less than its largest kernel, nor than its norms and reductions, which stay kernels
of their own with the pointwise work folded in (`sum t - max(max t, Q/B)`; the
external bytes Q are not known from names, so only the time bound is used).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import I8, Bool

_MEMBERS = (Role.POINTWISE, Role.NORM, Role.REDUCTION, Role.SOFTMAX, Role.LOSS)
MOST_SAVED = 0.9
"""However long a run, inputs and outputs remain, and compilers cap the size of one kernel."""
_ANCHORS = (Role.NORM, Role.REDUCTION, Role.SOFTMAX, Role.LOSS)
"""Need the whole row before they can go on: they end a fused kernel."""


@dataclass(frozen=True, slots=True)
class Chains:
    """Unfused runs of at least two kernels, summed over the window."""

    count: int
    kernels: int
    total_ns: int
    fusable_ns: int
    """Most that fusing each run could save of kernel time."""
    casting_ns: int
    """Conversions in runs: fused, they cost nothing of their own."""
    longest: int
    fused_ns: int
    """Kernels that a compiler has fused already."""
    names: tuple[str, ...]
    """Of the dearest run, in order, at most eight."""


def stream_order(joined: Joined, rows: Bool) -> I8:
    """Indices of `rows`, by stream and then by start."""
    at = np.flatnonzero(rows)
    activities = joined.window.activities
    return at[np.lexsort((activities.starts_ns[at], activities.stream_ids[at]))]


def runs(joined: Joined, order: I8, member: Bool) -> tuple[I8, I8]:
    """First and past-last positions in `order` of each run of members on one stream."""
    streams = joined.window.activities.stream_ids[order]
    inside = member[order]
    starts = inside.copy()
    starts[1:] &= ~inside[:-1] | (streams[1:] != streams[:-1])
    stops = inside.copy()
    stops[:-1] &= ~inside[1:] | (streams[1:] != streams[:-1])
    return np.flatnonzero(starts), np.flatnonzero(stops) + 1


def chains(joined: Joined, excluded: Bool) -> Chains | None:
    """All chains of the window; None when no kernel ran.

    Args:
        joined: The window's activities.
        excluded: Rows that another fix covers (eager attention, the optimizer): they break chains.
    """
    if not joined.kernels.any():
        return None
    member = joined.is_role(*_MEMBERS) & joined.kernels & ~excluded
    order = stream_order(joined, ~joined.is_role(Role.SET))
    first, stop = runs(joined, order, member)
    fused_ns = joined.total_ns(joined.is_role(Role.FUSED))
    long_enough = stop - first >= 2
    first, stop = first[long_enough], stop[long_enough]
    if not len(first):
        return Chains(0, 0, 0, 0, 0, 0, fused_ns, ())
    time = joined.durations_ns[order]
    anchored = joined.is_role(*_ANCHORS)[order]
    bounds = np.stack((first, np.minimum(stop, len(order) - 1)), 1).ravel()

    def sums(values: I8) -> I8:
        running = np.concatenate(([0], np.cumsum(values)))
        return np.asarray(running[stop] - running[first], np.int64)

    total = sums(time)
    anchors = sums(np.where(anchored, time, 0))
    padded = np.append(time, 0)
    largest = np.maximum.reduceat(padded, bounds)[::2]
    casting = joined.has(Trait.CAST)[order]
    saved = np.clip(total - np.maximum(largest, anchors), 0, MOST_SAVED * total).astype(np.int64)
    dearest = int(np.argmax(saved))
    return Chains(
        count=len(first),
        kernels=int((stop - first).sum()),
        total_ns=int(total.sum()),
        fusable_ns=int(saved.sum()),
        casting_ns=int(sums(np.where(casting, time, 0)).sum()),
        longest=int((stop - first).max()),
        fused_ns=fused_ns,
        names=_names(joined, order[first[dearest] : stop[dearest]][:8]),
    )


def _names(joined: Joined, rows: I8) -> tuple[str, ...]:
    window = joined.window
    return tuple(window.names[i] for i in window.activities.name_ids[rows])
