"""Which call launched which kernel or copy, by correlation id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.model.tables import I8, Activities, Calls, Span, edges


def call_of(activities: Activities, calls: Calls, observed: tuple[Span, ...] | None = None) -> I8:
    """Row of the launching call of each activity, shape (n,); -1 where none is known.

    A correlation id that several calls claim belongs to the last of them that began before the
    activity did. Ids may start anew with each traced span, so a call of one span launched nothing in
    another.

    Args:
        observed: The traced spans, in order; None: all of it was traced.
    """
    call_rows = np.full(len(activities), -1, np.int64)
    if not len(calls) or not len(activities):
        return call_rows
    order = np.lexsort((calls.starts_ns, calls.correlations))
    ids, begun = calls.correlations[order], calls.starts_ns[order]
    first = np.searchsorted(ids, activities.correlations, "left")
    last = np.searchsorted(ids, activities.correlations, "right")
    hit = (first < last) & (activities.correlations != 0)
    # Bisects the calls of each id by time: a minute of bursts can give an id to a call of each.
    low, high = first.copy(), last
    while (among := low < high).any():
        middle = (low + high) // 2
        before = among & (begun[np.minimum(middle, len(begun) - 1)] <= activities.starts_ns)
        low = np.where(before, middle + 1, low)
        high = np.where(among & ~before, middle, high)
    rows = order[np.minimum(np.maximum(low - 1, first), len(order) - 1)]
    if observed:
        hit &= _of_its_span(activities, calls, rows, observed)
    call_rows[hit] = rows[hit]
    return call_rows


def _of_its_span(
    activities: Activities, calls: Calls, rows: I8, observed: tuple[Span, ...]
) -> npt.NDArray[np.bool_]:
    """Whether the call in `rows` was made for the span of the activity: in it, or just before."""
    begun, ended = edges(observed)
    mine = np.searchsorted(begun, activities.starts_ns, "right") - 1
    # What runs out after a span's end was launched in it, or after that end too.
    after = np.searchsorted(ended, activities.starts_ns, "left")
    its = np.searchsorted(ended, calls.starts_ns[rows], "left")
    in_order = calls.starts_ns[rows] <= activities.starts_ns
    return np.asarray(((its == mine) | (its == after)) & in_order)
