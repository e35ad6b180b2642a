"""Waits of the host for the device: how many, how long, and where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from brrrtop.analysis.account.idle_causes import blocking
from brrrtop.analysis.kernels.traits import used
from brrrtop.analysis.signals.joined import Joined, mark_spans
from brrrtop.model import intervals
from brrrtop.model.tables import I8, Bool, Calls, Marks, Window
from brrrtop.model.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind

WAITING_OPS = frozenset(
    {"aten::item", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::_to_copy"}
)
"""Framework ops that read a value back; each holds the others it is made of."""


class Syncs(Struct, frozen=True):
    """Waits of threads that launch work, less those for an upload or within a save."""

    count: int
    blocked_ns: int
    """Host time inside them."""
    lines: tuple[tuple[str, int, int], ...]
    """Where: Python line or op, count, ns; dearest first, at most five. Empty: nobody knows."""


def syncs(joined: Joined) -> Syncs | None:
    """Waits in the window; None without call records."""
    window = joined.window
    calls = window.calls
    if not len(calls):
        return None
    waits = _waits(joined)
    saves = intervals.Cover(*mark_spans(window, MarkClass.CHECKPOINT))
    waits &= saves.between(calls.ends_ns - 1, calls.ends_ns) == 0
    last_launch = int(joined.launched_ns.max()) if len(joined.launched_ns) else 0
    waits &= calls.ends_ns <= last_launch
    uploads = _for_uploads(joined)
    real = waits & ~uploads
    starts, ends = calls.starts_ns[real], calls.ends_ns[real]
    low, high = intervals.clip(starts, ends, window.span.t0_ns, window.span.t1_ns)
    merged = intervals.merge(low, high)
    inside = (ends > window.span.t0_ns) & (starts < window.span.t1_ns)
    called = inside & (calls.classes[real] == CallClass.SYNC)
    return Syncs(
        count=int(called.sum()) or int(inside.sum()),
        blocked_ns=intervals.total(*merged),
        lines=_lines(window, starts, ends),
    )


def _waits(joined: Joined) -> Bool:
    """Calls of launching threads that made the host wait: synchronisations and blocking copies."""
    calls = joined.window.calls
    launching = np.unique(
        calls.tids[np.isin(calls.classes, (CallClass.LAUNCH, CallClass.GRAPH_LAUNCH))]
    )
    waits = blocking(joined.window.activities, calls, joined.launch_rows)
    return np.asarray(waits & np.isin(calls.tids, launching))


def _for_uploads(joined: Joined) -> Bool:
    """Calls during or just before which the newest finished activity was a pageable upload."""
    window = joined.window
    activities = window.activities
    is_upload = np.zeros(len(window.calls), np.bool_)
    if not len(activities):
        return is_upload
    order = np.argsort(activities.ends_ns, kind="stable")
    ends = activities.ends_ns[order]
    at = np.searchsorted(ends, window.calls.ends_ns, "right") - 1
    row = order[np.maximum(at, 0)]
    upload = (activities.copy_kinds[row] == CopyKind.HTOD) & (
        activities.src_kinds[row] == MemoryKind.PAGEABLE
    )
    return np.asarray((at >= 0) & upload)


def _lines(window: Window, starts: I8, ends: I8) -> tuple[tuple[str, int, int], ...]:
    """Who waited: marked Python calls, else ops that hold a wait, else stack samples within one."""
    marks = window.marks
    rows = np.flatnonzero(marks.classes == MarkClass.PYTHON_SYNC)
    cover = intervals.Cover(*intervals.merge_unsorted(starts, ends))
    if not len(rows):
        ops = np.flatnonzero(marks.classes == MarkClass.OP)
        known = used(marks.name_ids[ops])
        waiting = [i for i in known if window.names[i] in WAITING_OPS]
        rows = ops[np.isin(marks.name_ids[ops], waiting)]
        rows = rows[cover.between(marks.starts_ns[rows], marks.ends_ns[rows]) > 0]
    if not len(rows):
        rows = np.flatnonzero(marks.classes == MarkClass.STACK)
        at = marks.starts_ns[rows]
        rows = rows[cover.between(at, at + 1) > 0]
    return largest_names(window.names, marks, rows, 5)


def largest_names(
    names: Sequence[str], table: Calls | Marks, rows: I8, most: int
) -> tuple[tuple[str, int, int], ...]:
    """`(name, count, ns)` of `rows` of a table grouped by name, most time first."""
    if not len(rows):
        return ()
    ids, inverse = np.unique(table.name_ids[rows], return_inverse=True)
    time = np.zeros(len(ids), np.int64)
    np.add.at(time, inverse, (table.ends_ns - table.starts_ns)[rows])
    counts = np.bincount(inverse, minlength=len(ids))
    order = np.lexsort((-counts, -time))[:most]
    return tuple((names[ids[i]], int(counts[i]), int(time[i])) for i in order)
