"""One device's activities beside their launches, roles and traits: columns for the fact extractors.

Everything here is one pass of numpy over a window; nothing is judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brrrtop.estimator import intervals
from brrrtop.estimator.traits import tables
from brrrtop.model import I8, ActivityType, Bool, Window
from collectors.wire import CallClass, MarkClass

LATE_NS = 10_000
"""A launch that ends less than this before its kernel starts found the device waiting
(regime-theory, section 1.3)."""


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
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
    leads_ns: I8
    """Start less end of the launch; -1 where unknown."""
    in_optimizer: Bool
    """Launched within an optimizer mark."""
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
        found = np.zeros(len(self.roles), np.bool_)
        for role in roles:
            found |= self.roles == int(role)
        return found

    def total_ns(self, rows: Bool) -> int:
        """Summed time of `rows`; overlapping activities count each."""
        return int(self.durations_ns[rows].sum())


def mark_spans(window: Window, mark_class: int) -> tuple[I8, I8]:
    """Merged intervals of the marks of one class."""
    rows = window.marks.classes == int(mark_class)
    return intervals.merge_unsorted(window.marks.starts_ns[rows], window.marks.ends_ns[rows])


def launches(window: Window) -> I8:
    """Row of the call that launched each activity, (n,); -1 where none is known.

    Where runtime and driver calls share a correlation, the first to start wins.
    """
    calls = window.calls
    wanted = np.isin(
        calls.classes, (CallClass.LAUNCH, CallClass.GRAPH_LAUNCH, CallClass.COPY, CallClass.OTHER)
    ) & (calls.correlations > 0)
    rows = np.flatnonzero(wanted)
    found = np.full(len(window.activities), -1, np.int64)
    if not len(rows):
        return found
    order = np.argsort(calls.correlations[rows], kind="stable")
    keys = calls.correlations[rows][order]
    at = np.searchsorted(keys, window.activities.correlations)
    at = np.minimum(at, len(keys) - 1)
    match = (keys[at] == window.activities.correlations) & (window.activities.correlations > 0)
    found[match] = rows[order][at[match]]
    return found


def gaps(window: Window) -> tuple[I8, I8, I8]:
    """Idle gaps between activities: rows that end them, their starts and their ends, each (g,)."""
    starts, ends = window.activities.starts_ns, window.activities.ends_ns
    if len(starts) < 2:
        return intervals.EMPTY, intervals.EMPTY, intervals.EMPTY
    reach = np.maximum.accumulate(ends)[:-1]
    rows = np.flatnonzero(starts[1:] > reach) + 1
    return rows, reach[rows - 1], starts[rows]


def joined(window: Window) -> Joined:
    """The window's activities with everything a fact extractor may need beside them."""
    activities = window.activities
    roles, traits = tables(window)
    rows = launches(window)
    known = rows >= 0
    at = np.maximum(rows, 0)
    if len(window.calls):
        launched = np.where(known, window.calls.starts_ns[at], activities.starts_ns)
        leads = np.where(known, np.maximum(activities.starts_ns - window.calls.ends_ns[at], 0), -1)
    else:
        launched, leads = activities.starts_ns, np.full(len(activities), -1, np.int64)
    cover = intervals.Cover(*mark_spans(window, MarkClass.OPTIMIZER))
    low, high = intervals.clip(
        activities.starts_ns, activities.ends_ns, window.span.t0_ns, window.span.t1_ns
    )
    gap_rows, gap_starts, gap_ends = gaps(window)
    return Joined(
        window=window,
        durations_ns=high - low,
        roles=roles[activities.name_ids],
        traits=traits[activities.name_ids],
        launch_rows=rows,
        launched_ns=launched,
        leads_ns=leads,
        in_optimizer=known & (cover.between(launched, launched + 1) > 0),
        gap_rows=gap_rows,
        gap_starts_ns=gap_starts,
        gap_ends_ns=gap_ends,
    )
