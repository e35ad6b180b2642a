"""One device's activities beside their launches, roles and traits: columns for the fact extractors.

Everything here is one pass of numpy over a window; nothing is judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from brrrtop.analysis.kernels.traits import by_name, tables
from brrrtop.model import intervals
from brrrtop.model.tables import F8, I8, ActivityType, Bool, OpSignature, Window, edges, picked
from collectors.vocabulary import MarkClass

READ_BACK_BYTES = 4096
"""A value, a flag or a few of them: a larger copy to the host is traffic."""
IMAGE_AXES = 4
"""Batch, channels, height, width; a volume has one more."""


class LaunchTable(Struct, frozen=True, eq=False):
    """Columns of shape (n,), rows as in `Window.activities`."""

    window: Window
    durations_ns: I8
    """Clipped to the window."""
    roles: I8
    traits: I8
    launch_rows: I8
    """Row of the launching call in `Window.calls`; -1: unknown."""
    launched_ns: I8
    """Start of the launching call; the activity's own start where unknown."""
    in_optimizer: Bool
    """Launched within an optimizer mark."""
    in_save: Bool
    """Launched within a save of the training state."""
    gap_rows: I8
    """Shape (g,): rows that start after an idle gap of the device."""
    gap_starts_ns: I8
    gap_ends_ns: I8

    @property
    def kernels(self) -> Bool:
        return np.asarray(self.window.activities.types == ActivityType.KERNEL)

    def has(self, trait: int) -> Bool:
        """Rows whose name states any of `trait`."""
        return np.asarray((self.traits & int(trait)) != 0)

    def is_role(self, *roles: int) -> Bool:
        """Rows of these roles."""
        mask = np.zeros(len(self.roles), np.bool_)
        for role in roles:
            mask |= self.roles == int(role)
        return mask

    def named(self, pattern: str, rows: Bool | None = None) -> Bool:
        """Rows, of `rows` where given, whose name has a pattern."""
        ids, has = self.window.activities.name_ids, re.compile(pattern).search
        some = ids if rows is None else ids[rows]
        every = by_name(self.window.names, some, lambda name: has(name) is not None)[ids] > 0
        return np.asarray(every if rows is None else every & rows)

    def total_ns(self, rows: Bool) -> int:
        """Summed time of `rows`; overlapping activities count each."""
        return int(self.durations_ns[rows].sum())


def gaps(window: Window) -> tuple[I8, I8, I8]:
    """Idle gaps before and between activities.

    Time that was not traced is no gap.

    Returns:
        Row of the activity that ends each gap, its start and its end in ns; each of shape (g,).
    """
    starts, ends = window.activities.starts_ns, window.activities.ends_ns
    if not len(starts):
        return intervals.EMPTY, intervals.EMPTY, intervals.EMPTY
    begin = window.span.t0_ns if window.observed is None else int(starts[0])
    reach = np.concatenate(([begin], np.maximum.accumulate(ends)[:-1]))
    rows = np.flatnonzero(starts > reach)
    low, high = reach[rows], starts[rows]
    if window.observed is not None:
        cover = intervals.Cover(*intervals.merge(*edges(window.observed)))
        seen = cover.between(low, high) == high - low
        rows, low, high = rows[seen], low[seen], high[seen]
    return rows, low, high


def joined(window: Window, call_rows: I8) -> LaunchTable:
    """The window's activities with everything a fact extractor may need beside them.

    Args:
        window: Of one device.
        call_rows: Row of each activity's launching call, -1 where unknown.
    """
    activities = window.activities
    roles, traits = tables(window)
    known = call_rows >= 0
    launched = picked(window.calls.starts_ns, call_rows, activities.starts_ns)
    low, high = intervals.clip(
        activities.starts_ns, activities.ends_ns, window.span.t0_ns, window.span.t1_ns
    )
    gap_rows, gap_starts, gap_ends = gaps(window)
    return LaunchTable(
        window=window,
        durations_ns=high - low,
        roles=roles[activities.name_ids],
        traits=traits[activities.name_ids],
        launch_rows=call_rows,
        launched_ns=launched,
        in_optimizer=known & _in_optimizer(window, call_rows, launched),
        in_save=_within(window, MarkClass.CHECKPOINT, launched),
        gap_rows=gap_rows,
        gap_starts_ns=gap_starts,
        gap_ends_ns=gap_ends,
    )


def _within(window: Window, mark_class: int, times: I8) -> Bool:
    return np.asarray(intervals.holders(*window.marks.union(mark_class), times) >= 0)


def _in_optimizer(window: Window, call_rows: I8, launched: I8) -> Bool:
    """Rows launched within an optimizer range, or between the backward pass and an update's end.

    A live trainer only marks where updates end. Autograd launches the backward pass from threads
    of its own, so what the marking thread launches between the last of those and the mark is the
    optimizer, with what little comes before it (clipping, unscaling).
    """
    marks, calls = window.marks, window.calls
    if ((marks.classes == MarkClass.OPTIMIZER) & (marks.ends_ns > marks.starts_ns)).any():
        return _within(window, MarkClass.OPTIMIZER, launched)
    in_optimizer = np.zeros(len(launched), np.bool_)
    point = np.isin(marks.classes, (MarkClass.STEP, MarkClass.OPTIMIZER))
    point &= marks.starts_ns == marks.ends_ns
    if not point.any() or not len(calls):
        return in_optimizer
    stepping = marks.tids[np.flatnonzero(point)[-1]]
    points = marks.starts_ns[point & (marks.tids == stepping)]
    tids = calls.tids[np.maximum(call_rows, 0)]
    others = np.sort(launched[(call_rows >= 0) & (tids != stepping)])
    if not len(others):
        return in_optimizer
    ended = np.searchsorted(points, launched)
    within = ended < len(points)
    end = points[np.minimum(ended, len(points) - 1)]
    last = np.searchsorted(others, end) - 1
    backward = np.where(last >= 0, others[np.maximum(last, 0)], -1)
    before = np.where(ended > 0, points[np.maximum(ended - 1, 0)], -1)
    inside = within & (last >= 0) & (backward > before) & (launched > backward)
    return np.asarray(inside & (tids == stepping))


def _is_no_image(op: OpSignature) -> bool:
    """Whether its first tensor is no batch of images: a sequence, also as cuDNN sees it, 1 high."""
    first = op.dims[0] if op.dims else ()
    if not isinstance(first, tuple) or not first:
        return False
    return len(first) < IMAGE_AXES or (len(first) == IMAGE_AXES and 1 in first[2:])


def of_sequences(joined: LaunchTable) -> Bool:
    """Rows whose op works on tensors that are no batch of images; none where shapes are unknown."""
    return rows_of_ops(joined, _is_no_image)


def rows_of_ops(joined: LaunchTable, wanted: Callable[[OpSignature], bool]) -> Bool:
    """Rows whose framework op is as wanted; none where ops were not recorded."""
    return np.asarray(figures_of_ops(joined, wanted) == 1)


def figures_of_ops(joined: LaunchTable, figure: Callable[[OpSignature], float | None]) -> F8:
    """A figure of each row's framework op; NaN where the op has none or was not recorded."""
    window = joined.window
    if not len(window.links):
        return np.full(len(window.activities), np.nan)
    op_ids = window.links.ops_of(window.activities.correlations)
    ids, rows = np.unique(op_ids, return_inverse=True)
    ops = map(window.ops.get, ids.tolist())
    return np.array([figure(op) if op else None for op in ops], np.float64)[rows]
