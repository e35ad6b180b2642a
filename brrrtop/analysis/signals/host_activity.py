"""What the trainer's host side showed: driver calls, marks, and ops that launch nothing."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from brrrtop.analysis.signals.joined import Joined
from brrrtop.analysis.signals.syncs import largest_names
from brrrtop.model import intervals
from brrrtop.model.tables import Calls, Marks, Window
from brrrtop.model.vocabulary import MarkClass

CPU_OP_NS = 100_000
"""A shorter op is what any loop does between two launches."""


class Occurrences(Struct, frozen=True):
    """Marks or calls of one class within the window."""

    count: int = 0
    total_ns: int = 0
    """Union of their spans."""
    largest_ns: int = 0
    names: tuple[tuple[str, int, int], ...] = ()
    """Name, count, ns; largest first, at most three."""
    idle_ns: int = 0
    """Part of their spans in which the device was idle."""


class Pauses(Struct, frozen=True):
    """Marks of one class on the training thread, over the minute around the window or less of it."""

    count: int
    total_ns: int
    """Union of their spans."""
    largest_ns: int
    of_ns: int
    """From the first to the last thing that was seen then."""

    @property
    def share(self) -> float | None:
        """Of the time; None for one alone, whose period nobody knows."""
        return self.total_ns / self.of_ns if self.count > 1 and self.of_ns else None


class CpuWork(Struct, frozen=True):
    """Ops on tensors of the host in gaps of the device, as the average of weights copied there."""

    total_ns: int
    name: str
    """Of those that take the most time."""


def recompiles(window: Window) -> int:
    """Compiles that were not the first of their function."""
    values = window.marks.values[window.marks.classes == MarkClass.COMPILE]
    return int((values > 0).sum())


def retries(window: Window) -> int:
    """Retries of the caching allocator; a mark stands for one or for as many as it says."""
    values = window.marks.values[window.marks.classes == MarkClass.ALLOCATOR]
    return int(np.maximum(values, 1).sum())


def occurrences(joined: Joined, table: Calls | Marks, kind: int) -> Occurrences:
    """Those of a class; zero where nothing was seen."""
    span = joined.window.span
    rows = np.flatnonzero(
        (table.classes == kind) & (table.ends_ns > span.t0_ns) & (table.starts_ns < span.t1_ns)
    )
    if not len(rows):
        return Occurrences()
    low, high = intervals.clip(table.starts_ns[rows], table.ends_ns[rows], span.t0_ns, span.t1_ns)
    starts, ends = intervals.merge_unsorted(low, high)
    idle = intervals.Cover(joined.gap_starts_ns, joined.gap_ends_ns)
    return Occurrences(
        count=len(rows),
        total_ns=intervals.total(starts, ends),
        largest_ns=int((high - low).max()),
        names=largest_names(joined.window.names, table, rows, 3),
        idle_ns=int(idle.between(starts, ends).sum()),
    )


def pauses(window: Window, kind: MarkClass) -> Pauses | None:
    """Marks of a class between bursts too; None where nobody looked at the training thread, or none was seen.

    A burst holds a few steps and may lie between two saves for a whole watch; marks come at all times.
    The training thread is the one that stack samples are of.
    """
    marks = window.watched
    if marks is None:
        return None
    tids = marks.tids[marks.classes == MarkClass.STACK]
    rows = np.flatnonzero((marks.classes == kind) & np.isin(marks.tids, np.unique(tids)))
    if not len(rows):
        return None
    starts, ends = marks.starts_ns[rows], marks.ends_ns[rows]
    return Pauses(
        count=len(rows),
        total_ns=intervals.total(*intervals.merge(starts, ends)),
        largest_ns=int((ends - starts).max()),
        of_ns=int(marks.ends_ns.max() - marks.starts_ns.min()),
    )


def cpu_work(joined: Joined) -> CpuWork | None:
    """Ops that began and ended in one idle gap; None without any. Only a profiler records ops.

    What launches a kernel or a copy ends the gap or outlasts it, so it is none of them.
    """
    marks = joined.window.marks
    ops = np.flatnonzero(
        (marks.classes == MarkClass.OP) & (marks.ends_ns - marks.starts_ns >= CPU_OP_NS)
    )
    ops = ops[np.lexsort((-marks.ends_ns[ops], marks.starts_ns[ops]))]
    if not len(ops) or not len(joined.gap_rows):
        return None
    starts, ends = marks.starts_ns[ops], marks.ends_ns[ops]
    at = np.maximum(np.searchsorted(joined.gap_starts_ns, starts, "right") - 1, 0)
    within = (starts >= joined.gap_starts_ns[at]) & (ends <= joined.gap_ends_ns[at])
    within &= ends <= joined.launched_ns[joined.gap_rows[at]]
    ops = ops[within]
    # Ops within others are counted with them.
    reach = np.maximum.accumulate(marks.ends_ns[ops])
    outer = np.concatenate(([True], marks.starts_ns[ops][1:] >= reach[:-1]))[: len(ops)]
    ops = ops[outer]
    if not len(ops):
        return None
    name = largest_names(joined.window.names, marks, ops, 1)[0][0]
    return CpuWork(int((marks.ends_ns[ops] - marks.starts_ns[ops]).sum()), name)
