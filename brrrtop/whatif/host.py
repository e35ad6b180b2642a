"""The host's part of a step: what it does between two calls, and in them."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.account.idle_causes import BACK_TO_BACK_NS, DISPATCH_NS
from brrrtop.model import intervals
from brrrtop.model.tables import F8, I8, Bool, Window
from brrrtop.whatif.iterations import Iterations
from collectors.vocabulary import PAINT, MarkClass

LONG_CALL = 4.0
"""Times the usual call: a longer one on a busy device stood before a full launch queue."""
MOST_CALL_NS = 10_000.0
"""Of a usual call: where more is usual, most of them stood before a full queue."""
FULL_QUEUE = 900
"""Launches ahead of the device from which the queue counts as full; it takes 1,024."""
NO_WORKERS = ("num_workers=0", "_SingleProcess")
"""In the names of input marks of a loader that loads in the loop itself."""


class Nodes(Struct, frozen=True, eq=False):
    """Launches and waits of some steps, sorted by their place on the host's clock."""

    starts_ns: I8
    ends_ns: I8
    rows: I8
    calls: I8
    waits: Bool


def before(nodes: Nodes, repeats: Iterations) -> tuple[F8, I8]:
    """Host time between calls, and from when it counts; the first one's wraps round to the last."""
    reach = np.maximum.accumulate(nodes.ends_ns)
    previous = np.concatenate((nodes.starts_ns[:1], reach[:-1]))
    before = np.maximum(nodes.starts_ns - previous, 0).astype(np.float64)
    for begin, end in repeats.host:
        first = int(np.searchsorted(nodes.starts_ns, begin))
        last = int(np.searchsorted(nodes.starts_ns, end)) - 1
        if first > last:
            continue
        tail = max(0, end - int(reach[last]))
        before[first] = max(0, int(nodes.starts_ns[first]) - begin) + tail
        previous[first] = min(begin, int(nodes.starts_ns[first]))
    return before, previous


def without_back_pressure(call: F8, rows: Bool, nodes: Nodes, started: I8) -> F8:
    """Calls without the time they stood before a full launch queue: the device had work meanwhile."""
    if not rows.any():
        return call
    begun = np.searchsorted(np.sort(started[rows]), nodes.ends_ns)
    full = rows & (np.cumsum(rows) - begun > FULL_QUEUE)
    free = rows & ~full
    usual = min(float(np.median(call[free])), MOST_CALL_NS) if free.any() else MOST_CALL_NS / 2
    long = rows & (call > LONG_CALL * usual) & (started > nodes.ends_ns)
    long |= full & (call > usual)
    return np.where(long, usual, call)


def without_calls(
    nodes: Nodes, idle_from: I8, repeats: Iterations, window: Window
) -> tuple[F8, F8]:
    """Host time before each launch and idle time ahead of it, where no calls were recorded.

    Idle time as short as Python between two launches, or within a mark, is the host's; why a longer
    one is idle nobody knows: whatever is edited, it stays.
    """
    spacing, previous = before(nodes, repeats)
    gap = np.maximum(nodes.starts_ns - idle_from, 0).astype(np.float64)
    parts = named(window, previous, nodes.starts_ns, spacing).values()
    marked = sum(parts, np.zeros(len(spacing))) > 0
    host = (gap > BACK_TO_BACK_NS) & ((spacing <= DISPATCH_NS) | marked)
    return np.where(host, spacing, 0.0), np.where(host, 0.0, gap)


def batch_ns(window: Window, repeats: Iterations) -> float:
    """Time that workers take for a step's batch if it is they who set the pace; 0 without workers."""
    marks = window.marks
    rows = np.flatnonzero((marks.classes == MarkClass.INPUT) & repeats.holds(marks.starts_ns))
    names = {window.names[i] for i in np.unique(marks.name_ids[rows])}
    alone = any(word in name for name in names for word in NO_WORKERS)
    return repeats.measured_ns if len(rows) and not alone else 0.0


def named(window: Window, previous: I8, begun: I8, before: F8) -> dict[str, F8]:
    """Parts of the host's time between calls that marks name."""
    marks = window.marks
    layers = []
    for _, classes in PAINT:
        rows = np.isin(marks.classes, np.array([int(c) for c in classes]))
        layers.append(intervals.merge_unsorted(marks.starts_ns[rows], marks.ends_ns[rows]))
    painted = intervals.paint(layers)
    low, high = np.minimum(previous, begun), begun
    return {
        cause: np.minimum(intervals.Cover(*layer).between(low, high), before).astype(np.float64)
        for (cause, _), layer in zip(PAINT, painted, strict=True)
    }
