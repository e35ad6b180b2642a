"""Which call launched which kernel or copy, by correlation id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.model import intervals
from brrrtop.model.tables import I8, Activities, Calls, Span, edges


def call_of(activities: Activities, calls: Calls, observed: tuple[Span, ...] | None = None) -> I8:
    """Row of the launching call of each activity, shape (n,); -1 where none is known.

    A correlation id that several calls claim belongs to the last of them that began before the
    activity did. Ids may start anew with each traced span, so a call of one span launched nothing in
    another.

    Args:
        observed: The traced spans, in order; None: all of it was traced.
    """
    rows = intervals.latest_before(
        calls.correlations, calls.starts_ns, activities.correlations, activities.starts_ns
    )
    hit = (rows >= 0) & (activities.correlations != 0)
    if observed and hit.any():
        hit &= _of_its_span(activities, calls, rows, observed)
    return np.where(hit, rows, -1)


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
