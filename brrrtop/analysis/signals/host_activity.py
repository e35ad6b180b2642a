"""What the trainer's host side showed: driver calls and marks, as counts and times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.account.launches import loading_ns
from brrrtop.analysis.signals.joined import Joined, mark_spans
from brrrtop.analysis.signals.syncs import dearest_names
from brrrtop.model import intervals
from brrrtop.model.tables import Bool, Window
from brrrtop.model.vocabulary import CallClass, MarkClass


@dataclass(frozen=True, slots=True)
class Occurrences:
    """Marks or calls of one class within the window."""

    count: int = 0
    total_ns: int = 0
    """Union of their spans."""
    largest_ns: int = 0
    value: int = 0
    """Sum of the values of point marks (retries) or largest value of ranges."""
    names: tuple[tuple[str, int, int], ...] = ()
    """Name, count, ns; dearest first, at most three."""
    idle_ns: int = 0
    """Part of their spans in which the device was idle."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """The host side of the window."""

    allocs: Occurrences
    """Driver allocations and frees."""
    allocs_late: int
    """Those after half of the device's work began: none, where a cache was only filled."""
    modules: Occurrences
    loading_ns: int
    """Device idle while first launches of kernels loaded them (`launches.loading_ns`)."""
    compiles: Occurrences
    recompiles: int
    gc: Occurrences
    checkpoint: Occurrences
    logging: Occurrences
    retries: int
    """Caching-allocator retries."""
    launches: int


def hosts(joined: Joined) -> Hosts:
    """Host facts; zero where nothing was seen."""
    window = joined.window
    calls = window.calls
    idle = intervals.Cover(joined.gap_starts_ns, joined.gap_ends_ns)
    launch = np.isin(calls.classes, (CallClass.LAUNCH,))
    launch &= calls.ends_ns > window.span.t0_ns
    marks = window.marks
    compiles = marks.classes == MarkClass.COMPILE
    retries = marks.classes == MarkClass.ALLOCATOR
    return Hosts(
        allocs_late=_allocs_late(window),
        allocs=_calls(window, CallClass.ALLOC, idle),
        modules=_calls(window, CallClass.MODULE, idle),
        loading_ns=loading_ns(window, joined.launch_rows),
        compiles=_marks(window, MarkClass.COMPILE, idle),
        recompiles=int((marks.values[compiles] > 0).sum()),
        gc=_marks(window, MarkClass.GC, idle),
        checkpoint=_marks(window, MarkClass.CHECKPOINT, idle),
        logging=_marks(window, MarkClass.LOGGING, idle),
        retries=int(np.maximum(marks.values[retries], 1).sum()),
        launches=int(launch.sum()),
    )


def _allocs_late(window: Window) -> int:
    began = window.activities.starts_ns
    if not len(began):
        return 0
    late = window.calls.starts_ns >= np.sort(began)[len(began) // 2]
    return int(((window.calls.classes == CallClass.ALLOC) & late).sum())


def _marks(window: Window, mark_class: int, idle: intervals.Cover) -> Occurrences:
    rows = np.asarray(window.marks.classes == mark_class)
    starts, ends = mark_spans(window, mark_class)
    low, high = intervals.clip(starts, ends, window.span.t0_ns, window.span.t1_ns)
    length = high - low
    values = window.marks.values[rows]
    return Occurrences(
        count=int(rows.sum()),
        total_ns=int(length.sum()),
        largest_ns=int(length.max()) if len(length) else 0,
        value=int(values.max()) if len(values) else 0,
        names=dearest_names(window, np.flatnonzero(rows), 3),
        idle_ns=int(idle.between(low, high).sum()) if len(length) else 0,
    )


def _calls(window: Window, call_class: int, idle: intervals.Cover) -> Occurrences:
    calls = window.calls
    rows: Bool = np.asarray(calls.classes == call_class)
    low, high = intervals.clip(
        calls.starts_ns[rows], calls.ends_ns[rows], window.span.t0_ns, window.span.t1_ns
    )
    low, high = low[high > low], high[high > low]
    starts, ends = intervals.merge(low, high)
    return Occurrences(
        count=len(low),
        total_ns=intervals.total(starts, ends),
        largest_ns=int((high - low).max()) if len(low) else 0,
        names=_call_names(window, rows),
        idle_ns=int(idle.between(starts, ends).sum()) if len(starts) else 0,
    )


def _call_names(window: Window, rows: Bool) -> tuple[tuple[str, int, int], ...]:
    ids, inverse = np.unique(window.calls.name_ids[rows], return_inverse=True)
    time = np.zeros(len(ids), np.int64)
    np.add.at(time, inverse, (window.calls.ends_ns - window.calls.starts_ns)[rows])
    counts = np.bincount(inverse, minlength=len(ids))
    order = np.argsort(-time, kind="stable")[:3]
    return tuple((window.names[ids[i]], int(counts[i]), int(time[i])) for i in order)
