"""What the trainer's host side showed: driver calls, marks, waits for the device, ops that launch nothing."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.launches import blocking
from brrrtop.analysis.facts.stack_samples import without_callers
from brrrtop.analysis.facts.table import Facts
from brrrtop.kernel_names.traits import used
from brrrtop.model import intervals
from brrrtop.model.tables import I8, Bool, Calls, Marks, Window
from collectors.vocabulary import CallClass, CopyKind, MarkClass, MemoryKind

SET_UP_NS = 50_000_000
"""No op takes so long to its launch: it looks for an algorithm, or sets a library up."""
CPU_OP_NS = 100_000
"""A shorter op is what any loop does between two launches."""
WAITING_OPS = frozenset(
    {"aten::item", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::_to_copy"}
)
"""Framework ops that read a value back; each holds the others it is made of."""


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


class CpuWork(Struct, frozen=True):
    """Ops on tensors of the host in gaps of the device, as the average of weights copied there."""

    total_ns: int
    name: str
    """Of those that take the most time."""


def recompiles(facts: Facts) -> int:
    """Compiles that were not the first of their function."""
    values = facts.window.marks.values[facts.window.marks.classes == MarkClass.COMPILE]
    return int((values > 0).sum())


def retries(facts: Facts) -> int:
    """Retries of the caching allocator; a mark stands for one or for as many as it says."""
    values = facts.window.marks.values[facts.window.marks.classes == MarkClass.ALLOCATOR]
    return int(np.maximum(values, 1).sum())


def occurrences(facts: Facts, table: Calls | Marks, kind: int) -> Occurrences:
    """Those of a class; zero where nothing was seen."""
    span = facts.window.span
    rows = np.flatnonzero(
        (table.classes == kind) & (table.ends_ns > span.t0_ns) & (table.starts_ns < span.t1_ns)
    )
    if not len(rows):
        return Occurrences()
    low, high = intervals.clip(table.starts_ns[rows], table.ends_ns[rows], span.t0_ns, span.t1_ns)
    starts, ends = intervals.merge_unsorted(low, high)
    idle = intervals.Cover(*facts.gaps[1:])
    return Occurrences(
        count=len(rows),
        total_ns=intervals.total(starts, ends),
        largest_ns=int((high - low).max()),
        names=largest_names(facts.window.names, table, rows, 3),
        idle_ns=int(idle.between(starts, ends).sum()),
    )


def cpu_work(facts: Facts) -> CpuWork | None:
    """Ops that began and ended in one idle gap; None without any. Only a profiler records ops.

    What launches a kernel or a copy ends the gap or outlasts it, so it is none of them.
    """
    marks = facts.window.marks
    ops = np.flatnonzero(
        (marks.classes == MarkClass.OP) & (marks.ends_ns - marks.starts_ns >= CPU_OP_NS)
    )
    ops = ops[np.lexsort((-marks.ends_ns[ops], marks.starts_ns[ops]))]
    gap_rows, gap_starts, gap_ends = facts.gaps
    if not len(ops) or not len(gap_rows):
        return None
    starts, ends = marks.starts_ns[ops], marks.ends_ns[ops]
    at = np.maximum(np.searchsorted(gap_starts, starts, "right") - 1, 0)
    within = (starts >= gap_starts[at]) & (ends <= gap_ends[at])
    within &= ends <= facts.launched_ns[gap_rows[at]]
    ops = ops[within]
    # Ops within others are counted with them.
    reach = np.maximum.accumulate(marks.ends_ns[ops])
    outer = np.concatenate(([True], marks.starts_ns[ops][1:] >= reach[:-1]))[: len(ops)]
    ops = ops[outer]
    if not len(ops):
        return None
    name = largest_names(facts.window.names, marks, ops, 1)[0][0]
    return CpuWork(int((marks.ends_ns[ops] - marks.starts_ns[ops]).sum()), name)


def set_up_op(facts: Facts) -> CpuWork | None:
    """The outermost op that most of the long gaps went by in before it launched anything: on its way to a
    launch it loads a library, or looks for an algorithm, for each new shape again."""
    marks, (_, begins, ends) = facts.window.marks, facts.gaps
    ops = np.flatnonzero(marks.classes == MarkClass.OP)
    spent = Counter[str]()
    for at in np.flatnonzero(ends - begins >= SET_UP_NS) if len(ops) else ():
        low = np.maximum(marks.starts_ns[ops], begins[at])
        inside = np.minimum(marks.ends_ns[ops], ends[at]) - low
        op = ops[int(np.argmax(inside))]
        spent[facts.window.names[int(marks.name_ids[op])]] += max(int(inside.max()), 0)
    return CpuWork(spent[(name := max(spent, key=lambda one: spent[one]))], name) if spent else None


class Syncs(Struct, frozen=True):
    """Waits of threads that launch work, less those for an upload or within a save."""

    count: int
    blocked_ns: int
    """Host time inside them."""
    lines: tuple[tuple[str, int, int], ...]
    """Where: Python line or op, count, ns; dearest first, at most five. Empty: nobody knows."""


def syncs(facts: Facts) -> Syncs | None:
    """Waits in the window; None without call records."""
    window = facts.window
    calls = window.calls
    if not len(calls):
        return None
    waits = _waits(facts)
    waits &= intervals.holders(*facts.saves, calls.ends_ns - 1) < 0
    last_launch = int(facts.launched_ns.max()) if len(facts.launched_ns) else 0
    waits &= calls.ends_ns <= last_launch
    uploads = _for_uploads(facts)
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


def _waits(facts: Facts) -> Bool:
    calls = facts.window.calls
    launching = np.unique(
        calls.tids[np.isin(calls.classes, (CallClass.LAUNCH, CallClass.GRAPH_LAUNCH))]
    )
    return np.asarray(blocking(facts) & np.isin(calls.tids, launching))


def _for_uploads(facts: Facts) -> Bool:
    """Calls during or just before which the newest finished activity was a pageable upload."""
    window = facts.window
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
        ids, counts = np.unique(marks.name_ids[rows], return_counts=True)
        sampled: Counter[str] = Counter()
        for name_id, count in zip(ids.tolist(), counts.tolist(), strict=True):
            sampled[without_callers(window.names[name_id])] += count
        return tuple((line, count, 0) for line, count in sampled.most_common(5))
    return largest_names(window.names, marks, rows, 5)


def largest_names(
    names: Sequence[str], table: Calls | Marks, rows: I8, most: int
) -> tuple[tuple[str, int, int], ...]:
    """`(name, count, ns)` of `rows` of a table grouped by name, most time first."""
    ids, inverse = np.unique(table.name_ids[rows], return_inverse=True)
    time = np.zeros(len(ids), np.int64)
    np.add.at(time, inverse, (table.ends_ns - table.starts_ns)[rows])
    counts = np.bincount(inverse, minlength=len(ids))
    order = np.lexsort((-counts, -time))[:most]
    return tuple((names[ids[i]], int(counts[i]), int(time[i])) for i in order)
