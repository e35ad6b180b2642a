"""Bursts cut to whole steps, so that a wait between two steps is neither counted short nor twice.

A burst begins with the first kernel it sees and ends with its last: three steps of it hold two or
three waits for a loader. A step on the device lasts from the end of what was launched before one
mark to the end of what was launched before the next; both are in the burst where the host's step
was traced.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from brrrtop.model.intervals import holders
from brrrtop.model.tables import I8, Activities, Bool, Calls, Span, Window, edges, picked, spans_of
from collectors.vocabulary import MarkClass

ENOUGH = 0.5
"""Part of the traced time that whole steps must hold; and part of the usual number of launches that
a step must have: one whose tracing stopped halfway has fewer."""


def whole_steps(window: Window, call_rows: I8) -> tuple[Window, I8, tuple[Span, ...]]:
    """The window's bursts, calls and activities of whole steps alone, the calls' new rows, and
    those steps as they were on the device.

    The same again and no steps where nothing was traced in bursts, where no steps are marked by
    points, and where whole steps are less than half of it. No steps either where no launch is
    known: what ran between two marks may have been launched long before.
    """
    times = _points(window)
    if window.observed is None or len(times) < 2 or not len(window.activities):
        return window, call_rows, ()
    bounds, counts = _bounds(window.activities, window.calls, call_rows, times)
    whole = _whole(bounds, counts, window.observed)
    begins, ends = bounds[:-1][whole], bounds[1:][whole]
    spans = _join(begins, ends)
    traced_ns = sum(span.duration_ns for span in window.observed)
    if sum(span.duration_ns for span in spans) < ENOUGH * traced_ns:
        return window, call_rows, ()
    kept = _inside(window.activities.starts_ns, spans)
    host = _join(times[:-1][whole], times[1:][whole])
    mask = _inside(window.calls.starts_ns, host)
    rows = call_rows[kept]
    moved = np.where(mask, np.cumsum(mask) - 1, -1)
    return (
        replace(
            window,
            activities=window.activities.take(kept),
            calls=window.calls.take(mask),
            observed=spans,
        ),
        picked(moved, rows, -1),
        spans_of(begins, ends) if (call_rows >= 0).any() else (),
    )


def _points(window: Window) -> I8:
    """Host times at which steps ended."""
    marks = window.marks
    rows = (marks.classes == MarkClass.STEP) & (marks.starts_ns == marks.ends_ns)
    return np.sort(marks.ends_ns[rows])


def _bounds(activities: Activities, calls: Calls, call_rows: I8, times: I8) -> tuple[I8, I8]:
    """End of the work launched before each time, -1 without any; how many launches that were."""
    rows = np.flatnonzero(call_rows >= 0)
    if len(rows):
        launched = calls.starts_ns[call_rows[rows]]
    else:
        rows, launched = np.arange(len(activities)), activities.starts_ns
    order = np.argsort(launched, kind="stable")
    reach = np.maximum.accumulate(activities.ends_ns[rows[order]])
    counts = np.searchsorted(launched[order], times)
    return picked(reach, counts - 1, -1), counts


def _whole(bounds: I8, counts: I8, observed: tuple[Span, ...]) -> Bool:
    """Which steps between two bounds lie in one traced span and launched what steps launch."""
    begun, ended = edges(observed)
    at = holders(begun, ended + 1, bounds)  # work that ends with a span is in it
    whole = (at[:-1] >= 0) & (at[:-1] == at[1:]) & (bounds[1:] > bounds[:-1])
    launches = np.diff(counts)
    if whole.any():
        whole &= launches >= ENOUGH * np.median(launches[whole])
    return np.asarray(whole)


def _join(starts: I8, ends: I8) -> tuple[Span, ...]:
    """Spans in order, those that touch made one."""
    if not len(starts):
        return ()
    opens = np.concatenate(([True], starts[1:] != ends[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return spans_of(starts[opens], ends[closes])


def _inside(times: I8, spans: tuple[Span, ...]) -> Bool:
    return np.asarray(holders(*edges(spans), times) >= 0)
