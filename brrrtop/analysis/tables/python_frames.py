"""Which module and which Python function device work and idle time belong to."""

from collections.abc import Callable

import numpy as np

from brrrtop.analysis.facts.table import Facts
from brrrtop.analysis.tables.ops import (
    OpTimes,
    depths_of,
    named_sides,
    nested_in_same,
    sides_by,
    sums,
    with_ancestors,
)
from brrrtop.kernel_names.traits import by_name
from brrrtop.model.host_tables import FrameRow, HostDetails, HostOps, ModuleRow, StallRow
from brrrtop.model.intervals import Nest
from brrrtop.model.tables import I8, Bool, picked
from brrrtop.text.units import without_object

_MODULE = "nn.Module: "
_SAMPLES = 4096
_LEAST_GAP_NS = 10_000
"""Shorter gaps are no stall."""
_MOST_STALLS = 40
_ROOF_KNOWN = 0.5
"""Part of a module's time for which roofs must be known, or its share of them says nothing."""


class FrameNest(Nest):
    """The frames whose name passes a test, as a forest."""

    def __init__(self, details: HostDetails, test: Callable[[str], bool]) -> None:
        frames = details.frames
        passes = by_name(details.names, frames.name_ids, test) > 0
        frames = frames.take(passes[frames.name_ids])
        super().__init__(frames.tids, frames.starts_ns, frames.ends_ns)
        self.name_ids: I8 = frames.name_ids[self.order]
        """By position in the nest."""

    def names_of(self, positions: I8) -> I8:
        """Name ids; -1 where the position is."""
        return picked(self.name_ids, positions, -1)


def is_module(name: str) -> bool:
    return name.startswith(_MODULE)


def homes(nest: FrameNest, details: HostDetails, times: OpTimes, work: Facts) -> tuple[I8, Bool]:
    """Position of the frame that each activity of `times.rows` came from, and what is of the backward pass.

    Work of the backward pass belongs to the frame in which the op ran that it is the backward of.
    """
    rows = times.rows
    frames = np.full(len(rows), -1, np.int64)
    if not len(nest.name_ids):
        return frames, np.zeros(len(rows), np.bool_)
    calls = work.window.calls
    known = work.call_rows[rows]
    direct = known >= 0
    at = known[direct]
    frames[direct] = nest.holder(calls.tids[at], calls.starts_ns[at], calls.ends_ns[at])
    forward, is_backward = _forward_ops(details.ops, times.ops)
    back = np.flatnonzero(forward >= 0)
    ops, source = details.ops, forward[back]
    frames[back] = nest.holder(ops.tids[source], ops.starts_ns[source], ops.ends_ns[source])
    return frames, is_backward


def _forward_ops(ops: HostOps, rows: I8) -> tuple[I8, Bool]:
    """The forward op that each op is the backward of, -1 where there is none; and what is of the backward.

    Both carry the number of the autograd node; of several forward ops with it the last made the node.
    """
    at = rows.copy()
    climbing = np.flatnonzero(at >= 0)
    while len(climbing):
        climbing = climbing[~ops.backward[at[climbing]]]
        at[climbing] = ops.parents[at[climbing]]
        climbing = climbing[at[climbing] >= 0]
    backward = at >= 0
    forward = np.full(len(rows), -1, np.int64)
    making = np.flatnonzero(~ops.backward & (ops.sequences >= 0))
    if not len(making) or not backward.any():
        return forward, backward
    making = making[np.lexsort((ops.starts_ns[making], ops.sequences[making]))]
    known = ops.sequences[making]
    wanted = ops.sequences[np.maximum(at, 0)]
    last = np.searchsorted(known, wanted, "right") - 1
    hit = backward & (last >= 0) & (known[np.maximum(last, 0)] == wanted) & (wanted >= 0)
    forward[hit] = making[last[hit]]
    return forward, backward


def module_rows(
    nest: FrameNest, details: HostDetails, times: OpTimes, work: Facts,
    homes_of: tuple[I8, Bool],
) -> list[ModuleRow]:  # fmt: skip
    if not len(nest.name_ids):
        return []
    frames, is_backward = homes_of
    parents, count = nest.parents, len(nest.name_ids)
    rows = times.rows[frames >= 0]
    at = frames[frames >= 0]
    ids, keys = np.unique(nest.name_ids, return_inverse=True)
    outer = ~nested_in_same(parents, keys)
    own = sides_by(at, count, work, rows)
    whole = with_ancestors(own.astype(np.float64), parents)
    back = is_backward[frames >= 0]
    backward = with_ancestors(np.bincount(at[back], work.durations_ns[rows[back]], count), parents)
    size = len(ids)
    sides = np.stack([sums(keys[outer], size, whole[outer, k]) for k in range(whole.shape[1])], 1)
    self_ns = sums(keys, size, own.sum(axis=1))
    backward_ns = sums(keys[outer], size, backward[outer])
    host_ns = sums(keys[outer], size, nest.durations_ns[outer])
    counts = np.bincount(keys, minlength=size)
    roofs = _roofs(at, rows, work, parents, keys, outer, size)
    above = _parent_keys(keys, parents, size)
    names = [details.names[i].removeprefix(_MODULE) for i in ids.tolist()]
    depths = depths_of(above)
    return [
        ModuleRow(
            name=names[k], parent=names[above[k]] if above[k] >= 0 else None, depth=int(depths[k]),
            count=int(counts[k]), host_ns=int(host_ns[k]), device_total_ns=int(sides[k].sum()),
            device_self_ns=int(self_ns[k]), backward_ns=int(backward_ns[k]),
            sides_ns=named_sides(sides[k]), roof_share=roofs[k],
        )
        for k in _outer_first(above, sides.sum(axis=1))
    ]  # fmt: skip


def _roofs(
    at: I8, rows: I8, work: Facts, parents: I8, keys: I8, outer: Bool, size: int
) -> list[float | None]:
    shares, ns = work.roof_shares[rows], work.durations_ns[rows].astype(np.float64)
    is_known = ~np.isnan(shares)
    amounts = np.stack(
        [
            np.bincount(at[is_known], (ns * shares)[is_known], len(parents)),
            np.bincount(at[is_known], ns[is_known], len(parents)),
            np.bincount(at, ns, len(parents)),
        ],
        axis=1,
    )
    totals = with_ancestors(amounts, parents)[outer]
    top, known, whole = (np.bincount(keys[outer], totals[:, k], size) for k in range(3))
    return [
        float(a / b) if b > 0 and b >= _ROOF_KNOWN * c else None
        for a, b, c in zip(top, known, whole, strict=True)
    ]


def _parent_keys(keys: I8, parents: I8, size: int) -> I8:
    """The module that first held each; never one that it holds itself."""
    above = np.full(size, -1, np.int64)
    rows = np.flatnonzero(parents >= 0)[::-1]
    above[keys[rows]] = keys[parents[rows]]
    for key in range(size):
        at, seen = int(above[key]), {key}
        while at >= 0 and at not in seen:
            seen.add(at)
            at = int(above[at])
        if at == key:
            above[key] = -1
    return above


def _outer_first(above: I8, totals: I8) -> list[int]:
    """Keys so that each is followed by what it holds, larger ones first."""
    below: dict[int, list[int]] = {}
    for key in np.argsort(-totals, kind="stable").tolist():
        below.setdefault(int(above[key]), []).append(key)
    order: list[int] = []
    waiting = below.get(-1, [])[::-1]
    while waiting:
        key = waiting.pop()
        order.append(key)
        waiting += below.pop(key, [])[::-1]
    return order


def frame_rows(
    nest: FrameNest, details: HostDetails, times: OpTimes, work: Facts, frames: I8
) -> list[FrameRow]:
    """Device time by the user's own functions, largest total first."""
    if not len(nest.name_ids):
        return []
    parents, count = nest.parents, len(nest.name_ids)
    has_frame = frames >= 0
    own = np.bincount(frames[has_frame], work.durations_ns[times.rows[has_frame]], count)
    total = with_ancestors(own, parents)
    ids, keys = np.unique(nest.name_ids, return_inverse=True)
    outer = ~nested_in_same(parents, keys)
    totals = sums(keys[outer], len(ids), total[outer])
    selfs = sums(keys, len(ids), own)
    order = np.argsort(-totals, kind="stable")
    return [
        FrameRow(details.names[ids[k]], int(totals[k]), int(selfs[k]))
        for k in order.tolist()
        if totals[k]
    ]


def stall_rows(users: FrameNest, details: HostDetails, work: Facts) -> list[StallRow]:
    """Where the thread with most frames was in gaps for which the host was late, by evenly spaced samples."""
    window = work.window
    ends, low, high = work.gaps
    high = np.minimum(high, picked(window.calls.starts_ns, work.call_rows[ends], high))
    kept = high - low >= _LEAST_GAP_NS
    low, high = low[kept], high[kept]
    whole = int((high - low).sum())
    if not whole or not len(details.frames):
        return []
    points = _spread(low, high, whole)
    threads, counts = np.unique(details.frames.tids, return_counts=True)
    tids = np.full(len(points), threads[counts.argmax()], np.int64)
    deepest = FrameNest(details, lambda _: True)
    inside = deepest.names_of(deepest.holder(tids, points, points))
    places = users.names_of(users.holder(tids, points, points))
    ops = Nest(details.ops.tids, details.ops.starts_ns, details.ops.ends_ns)
    at = ops.holder(tids, points, points)
    op_names = picked(details.ops.name_ids[ops.order], at, -1)
    places = np.where(places >= 0, places, np.where(inside >= 0, inside, op_names))
    inside = np.where(inside >= 0, inside, op_names)
    return _stalls(places, inside, details, whole, window.span.duration_ns)


def _spread(low: I8, high: I8, whole: int) -> I8:
    """Instants evenly spaced over the gaps."""
    count = min(_SAMPLES, whole)
    before = np.concatenate(([0], np.cumsum(high - low)))
    offsets = (np.arange(count, dtype=np.float64) + 0.5) * (whole / count)
    at = np.searchsorted(before, offsets, "right") - 1
    return np.asarray(low[at] + (offsets - before[at]).astype(np.int64))


def _stalls(
    places: I8, inside: I8, details: HostDetails, whole: int, window_ns: int
) -> list[StallRow]:
    pairs, counts = np.unique(np.stack([places, inside]), axis=1, return_counts=True)
    totals: dict[tuple[str, str | None], int] = {}
    for (place, within), count in zip(pairs.T.tolist(), counts.tolist(), strict=True):
        if place >= 0:
            inner = None if within in (-1, place) else without_object(details.names[within])
            key = (without_object(details.names[place]), inner)
            totals[key] = totals.get(key, 0) + count
    rows = []
    for (place, inner), count in sorted(totals.items(), key=lambda one: -one[1])[:_MOST_STALLS]:
        idle = whole * count // len(places)
        rows.append(StallRow(place, inner, idle, idle / window_ns))
    return rows
