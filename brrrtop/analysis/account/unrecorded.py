"""When calls were made that nobody recorded, told from the calls around them.

Live, only the calls worth their price bring rows: those behind memsets do not. Such a memset
stands before a kernel that needs it, launched by the same thread right after it.
"""

from __future__ import annotations

import numpy as np

from brrrtop.analysis.account.launches import AHEAD_NS
from brrrtop.model.tables import I8, Activities, ActivityType, Bool, Calls

_NONE = 0.01
"""Part of a type's activities whose calls may be known by accident, as its ids start anew."""


def call_times(activities: Activities, calls: Calls, call_rows: I8) -> tuple[I8, I8, Bool]:
    """Start and end of each activity's launching call, and whether both are known, each (n,).

    Where calls of copies or memsets were not recorded at all, such a call is taken to lie as long
    before its activity as the calls of kernels that found the device waiting (medians), and not
    after the next recorded launch into its stream.

    Args:
        call_rows: Row of each activity's call, -1 where none was recorded.
    """
    known = call_rows >= 0
    if not len(calls) or not len(activities):
        zero = np.zeros(len(activities), np.int64)
        return zero, zero, np.zeros(len(activities), np.bool_)
    rows = np.maximum(call_rows, 0)
    starts, ends = calls.starts_ns[rows], calls.ends_ns[rows]
    leads = activities.starts_ns - ends
    kernels = activities.types == ActivityType.KERNEL
    late = known & kernels & (leads < AHEAD_NS)
    missing = _is_unrecorded(activities, known)
    if not late.any() or not missing.any():
        return starts, ends, known
    usual = int(np.median((activities.starts_ns - starts)[late]))
    length = int(np.median((ends - starts)[late]))
    next_starts = _next_launch(activities, starts, known)
    supposed = np.minimum(activities.starts_ns - usual, next_starts)
    starts = np.where(missing, supposed, starts)
    ends = np.where(missing, np.minimum(supposed + length, next_starts), ends)
    return starts, ends, known | missing


def _is_unrecorded(activities: Activities, known: Bool) -> Bool:
    """Copies and memsets of a type without recorded calls, which a recorded launch follows."""
    missing = np.zeros(len(known), np.bool_)
    for kind in (ActivityType.COPY, ActivityType.MEMSET):
        rows = activities.types == kind
        if rows.any() and np.count_nonzero(known[rows]) <= _NONE * np.count_nonzero(rows):
            missing |= rows & ~known & (activities.graph_ids == 0)
    return missing & (_next_launch(activities, activities.starts_ns, known) >= 0)


def _next_launch(activities: Activities, starts: I8, known: Bool) -> I8:
    """Start of the next recorded call into each activity's stream, shape (n,); -1 without one."""
    order = np.lexsort((activities.starts_ns, activities.stream_ids))
    count = len(order)
    places = np.where(known[order], np.arange(count), count)
    following = np.minimum.accumulate(places[::-1])[::-1]
    rows = order[np.minimum(following, count - 1)]
    same = (following < count) & (activities.stream_ids[rows] == activities.stream_ids[order])
    next_launch = np.empty(count, np.int64)
    next_launch[order] = np.where(same, starts[rows], -1)
    return next_launch
