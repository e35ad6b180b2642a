"""Runs of consecutive memory-side kernels on a stream; `brrrtop.whatif` says what fusing them wins.

A run is broken by anything that is no pointwise, norm, reduction or softmax kernel.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.kernels.traits import Role, Trait
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.tables import I8, Bool

_MEMBERS = (Role.POINTWISE, Role.NORM, Role.REDUCTION, Role.SOFTMAX, Role.LOSS)


class Chains(Struct, frozen=True):
    """Unfused runs of at least two kernels, summed over the window."""

    count: int
    kernels: int
    total_ns: int
    casting_ns: int
    """Conversions in runs: fused, they cost nothing of their own."""
    longest: int
    fused_ns: int
    """Kernels that a compiler has fused already."""
    names: tuple[str, ...]
    """Of the run that takes the most time, in order, at most eight."""


def chains(joined: Joined, excluded: Bool) -> Chains | None:
    """All chains of the window; None when no kernel ran.

    Args:
        joined: The window's activities.
        excluded: Rows that another fix covers (eager attention, the optimizer): they break chains.
    """
    if not joined.kernels.any():
        return None
    window = joined.window
    activities, no_set = window.activities, ~joined.is_role(Role.SET)
    order = np.lexsort((activities.starts_ns, activities.stream_ids))
    order = order[no_set[order]]
    inside = (joined.is_role(*_MEMBERS) & joined.kernels & ~excluded)[order]
    streams = activities.stream_ids[order]
    breaks = np.ones(len(order) + 1, np.bool_)
    breaks[1:-1] = (inside[1:] != inside[:-1]) | (streams[1:] != streams[:-1])
    edges = np.flatnonzero(breaks)
    first, stop = edges[:-1], edges[1:]
    kept = inside[first] & (stop - first >= 2)
    first, stop = first[kept], stop[kept]
    fused_ns = joined.total_ns(joined.is_role(Role.FUSED))
    if not len(first):
        return Chains(0, 0, 0, 0, 0, fused_ns, ())

    def sums(values: I8) -> I8:
        running = np.concatenate(([0], np.cumsum(values[order])))
        return np.asarray(running[stop] - running[first], np.int64)

    total = sums(joined.durations_ns)
    largest = int(np.argmax(total))
    rows = order[first[largest] : stop[largest]][:8]
    return Chains(
        count=len(first),
        kernels=int((stop - first).sum()),
        total_ns=int(total.sum()),
        casting_ns=int(sums(np.where(joined.has(Trait.CAST), joined.durations_ns, 0)).sum()),
        longest=int((stop - first).max()),
        fused_ns=fused_ns,
        names=tuple(window.names[i] for i in window.activities.name_ids[rows]),
    )
