"""All tables of a judged window; here are those that need launches, marks or memory events only."""

import re

import numpy as np
from msgspec.structs import replace

from brrrtop.analysis.estimate import facts_of
from brrrtop.analysis.facts.collectives import UNKNOWN_SIZE, algorithm_of, collectives_of, name_of
from brrrtop.analysis.facts.ranges import phase_of
from brrrtop.analysis.facts.table import Facts
from brrrtop.analysis.tables import ops, python_frames
from brrrtop.analysis.tables.ops import (
    named_sides,
    nested_in_same,
    sides_by,
    sums,
    with_ancestors,
)
from brrrtop.kernel_names.facts import name_facts
from brrrtop.model import intervals
from brrrtop.model.host_tables import (
    AliveRow,
    AnnotationRow,
    CopyRow,
    HostDetails,
    HostTables,
    MemoryEvents,
    MemoryUse,
    OwnCollectiveRow,
    PhaseRow,
    Queue,
)
from brrrtop.model.intervals import Nest
from brrrtop.model.tables import F8, I8, ActivityType, Marks, Span, Window, picked
from brrrtop.text.units import is_users
from collectors.vocabulary import CallClass, MarkClass

FULL = 1_000
"""A stream takes 1,024 launches; events and waits between them are some of these."""
_RANGES = (
    MarkClass.STEP, MarkClass.INPUT, MarkClass.CHECKPOINT, MarkClass.LOGGING, MarkClass.EVALUATION,
    MarkClass.OPTIMIZER, MarkClass.ANNOTATION,
)  # fmt: skip
_NUMBER = re.compile(r"\s*#\s*\d+$|(?<=[_ ])\d+$")
_POINTS = 400
_MOST_ALIVE = 20


def host_tables(
    facts: Facts,
    details: HostDetails | None = None,
    recorded: tuple[Window, HostDetails] | None = None,
) -> HostTables:
    """Ops, modules, stalls, queue, copies, annotations, phases and memory.

    Args:
        details: Of the whole source; None: it has no ops, frames and memory events.
        recorded: The one step that was recorded with shapes, and its ops: what a live run has.
    """
    annotations, phases = annotation_rows(facts)
    tables = HostTables(
        queue=launch_queue(facts),
        copies=tuple(copy_rows(facts)),
        collectives=tuple(collective_rows(facts.window)),
        annotations=tuple(annotations),
        phases=tuple(phases),
    )
    if details is not None:
        return _with_details(tables, facts, details)
    if recorded is not None:
        return _with_details(tables, _whole(recorded[0]), recorded[1])
    return tables


def _whole(window: Window) -> Facts:
    last_ns = max(window.span.t1_ns, int(window.activities.ends_ns.max()))
    return facts_of(replace(window, span=Span(window.span.t0_ns, last_ns)))


def _with_details(tables: HostTables, work: Facts, details: HostDetails) -> HostTables:
    """The tables and those of ops, modules, frames and memory."""
    times = ops.op_times(details, work)
    modules = python_frames.FrameNest(details, python_frames.is_module)
    users = python_frames.FrameNest(details, is_users)
    homes = python_frames.homes(modules, details, times, work)
    places, _ = python_frames.homes(users, details, times, work)
    module_of, place_of = modules.names_of(homes[0]), users.names_of(places)
    busy = int(work.durations_ns.sum())
    known = int(work.durations_ns[times.rows].sum())
    return replace(
        tables,
        ops=tuple(ops.by_name(details, times, module_of, place_of, details.names)),
        op_shapes=tuple(ops.by_shapes(details, times)),
        ops_of_one_step=details.recorded_step,
        modules=tuple(python_frames.module_rows(modules, details, times, work, homes)),
        frames=tuple(python_frames.frame_rows(users, details, times, work, places)),
        stalls=tuple(python_frames.stall_rows(users, details, work)),
        memory=memory_use(details, work.window.device.device_id),
        unattributed_ns=busy - known if len(details.ops) else None,
    )


def launch_queue(work: Facts) -> Queue | None:
    """How far launches were ahead, stream by stream; None where no launch is known."""
    acts, calls = work.window.activities, work.window.calls
    launched = picked(calls.classes, work.call_rows, -1) == CallClass.LAUNCH
    rows = np.flatnonzero(launched & (acts.types == ActivityType.KERNEL))
    at = work.call_rows[rows]
    if not len(rows):
        return None
    lengths = np.zeros(len(rows), np.int64)
    streams = acts.stream_ids[rows]
    for stream in np.unique(streams):
        on_stream = np.flatnonzero(streams == stream)
        made = np.argsort(calls.starts_ns[at[on_stream]], kind="stable")
        begun = np.sort(acts.starts_ns[rows[on_stream]])
        times = calls.starts_ns[at[on_stream[made]]]
        ahead = np.arange(len(on_stream)) - np.searchsorted(begun, times, "right")
        lengths[on_stream[made]] = np.maximum(ahead, 0)
    took = calls.ends_ns[at] - calls.starts_ns[at]
    full = lengths >= FULL
    usual = int(np.median(took[~full])) if (~full).any() else 0
    return Queue(
        length_p50=int(np.median(lengths)),
        length_p95=int(np.percentile(lengths, 95)),
        length_max=int(lengths.max()),
        full_launches=int(full.sum()),
        blocked_ns=int(np.maximum(took[full] - usual, 0).sum()),
    )


def copy_rows(work: Facts) -> list[CopyRow]:
    acts = work.window.activities
    rows = np.flatnonzero(acts.types != ActivityType.KERNEL)
    names, keys = np.unique(acts.name_ids[rows], return_inverse=True)
    sizes = np.maximum(acts.size_bytes[rows], 0)
    whole = acts.ends_ns[rows] - acts.starts_ns[rows]
    largest = np.zeros(len(names), np.int64)
    np.maximum.at(largest, keys, sizes)
    amounts, times = sums(keys, len(names), sizes), sums(keys, len(names), whole)
    counts = np.bincount(keys, minlength=len(names))
    return [
        CopyRow(
            work.window.names[names[k]], int(counts[k]), int(amounts[k]), int(times[k]),
            float(amounts[k] / times[k] * 1e9) if amounts[k] and times[k] else None,
            int(largest[k]),
        )
        for k in np.argsort(-times, kind="stable").tolist()
    ]  # fmt: skip


def collective_rows(window: Window) -> list[OwnCollectiveRow]:
    """Collectives of this rank by type, algorithm, size and type of elements, most time first."""
    seen = collectives_of(window)
    if not len(seen):
        return []
    groups: dict[tuple[str, str | None, int, str | None], list[int]] = {}
    for row, op in enumerate(seen.op_names):
        name = name_of(int(seen.types[row]), op)
        kernel = window.names[int(seen.name_ids[row])]
        key = (name, algorithm_of(kernel), int(seen.sizes[row]), name_facts(kernel).precision)
        groups.setdefault(key, []).append(row)
    lengths = seen.ends_ns - seen.starts_ns
    rows = []
    for (name, algorithm, size, elements), members in groups.items():
        total, known = int(lengths[members].sum()), size != UNKNOWN_SIZE
        rows.append(
            OwnCollectiveRow(
                name,
                algorithm,
                len(members),
                size if known else None,
                elements,
                total,
                int(seen.alone_ns(seen.starts_ns[members], seen.ends_ns[members]).sum()),
                size * len(members) * 1e9 / total if known and total else None,
            )
        )
    return sorted(rows, key=lambda row: -row.total_ns)


def annotation_rows(work: Facts) -> tuple[list[AnnotationRow], list[PhaseRow]]:
    """Ranges by name, and those that are phases of inference.

    What a thread launches outside its own ranges, as autograd's does, belongs to those of the thread that
    has most ranges. A profiler's step has what the device did between its marks: what it launches last
    runs in the next one, and the backward pass is launched by other threads.
    """
    marks = work.window.marks
    marks = marks.take(np.isin(marks.classes, _RANGES) & (marks.ends_ns > marks.starts_ns))
    if not len(marks):
        return [], []
    nest = Nest(marks.tids, marks.starts_ns, marks.ends_ns)
    tids, counts = np.unique(marks.tids, return_counts=True)
    rows, call_tids, starts, ends = work.known_launches
    others = nest.holder(np.full_like(call_tids, tids[counts.argmax()]), starts, ends)
    at = nest.holder(call_tids, starts, ends)
    at = np.where(at < 0, others, at)
    rows, at = rows[at >= 0], at[at >= 0]
    whole = with_ancestors(sides_by(at, len(marks), work, rows).astype(np.float64), nest.parents)
    name_ids = marks.name_ids[nest.order]
    used, inverse = np.unique(name_ids, return_inverse=True)
    names = [work.window.names[i] for i in used.tolist()]
    spans = (marks.ends_ns - marks.starts_ns)[nest.order]
    short = [_NUMBER.sub("", name) or name for name in names]
    active = _ActiveTime(work, nest, rows, at, marks.take(nest.order))
    table = _group(short, inverse, nest.parents, spans, whole)
    annotations = [
        AnnotationRow(name, count, host, active.of(members), named_sides(sides))
        for name, count, host, sides, members in table
    ]
    annotations.sort(key=lambda row: (-row.device_ns, -row.host_ns))
    phases = [phase_of(name) for name in names]
    if not any(phases):
        return annotations, []
    grouped = _group(
        [phase[0] if phase else "" for phase in phases], inverse, nest.parents, spans, whole
    )
    tokens = np.array([-1 if not phase or phase[1] is None else phase[1] for phase in phases])
    result = []
    for name, count, host, _, members in grouped:
        token_counts = tokens[inverse[members]]
        if name:
            total = int(token_counts.sum()) if (token_counts >= 0).all() else None
            result.append(PhaseRow(name, count, host, active.of(members), total))
    return annotations, result


class _ActiveTime:
    """When the device was at work for ranges: streams that overlap count once.

    Args:
        rows: Of the activities launched within a range, `at` the innermost one each, by its place in `nest`.
        marks: By place in `nest`.
    """

    def __init__(self, work: Facts, nest: Nest, rows: I8, at: I8, marks: Marks) -> None:
        acts, span = work.window.activities, work.window.span
        self._starts, self._ends = intervals.clip(
            acts.starts_ns, acts.ends_ns, span.t0_ns, span.t1_ns
        )
        self._busy = intervals.Cover(*intervals.merge_unsorted(self._starts, self._ends))
        self._launched = picked(work.window.calls.starts_ns, work.call_rows, np.iinfo(np.int64).max)
        self._marks, self._is_step = marks, marks.classes == MarkClass.STEP
        chain, launched = [at], [rows]
        while len(at := nest.parents[at]) and (at >= 0).any():
            rows, at = rows[at >= 0], at[at >= 0]
            chain.append(at)
            launched.append(rows)
        places = np.concatenate(chain)
        order = np.argsort(places, kind="stable")
        self._places, self._rows = places[order], np.concatenate(launched)[order]

    def of(self, members: I8) -> int:
        """Time at work for any of these places of the nest."""
        steps = members[self._is_step[members]]
        between = np.int64(0)
        if len(steps):
            ends = self._marks.ends_ns[steps]
            last = int(ends.argmax())
            # The device is behind: what the last step launched is still to come.
            done = self._ends[self._launched < ends[last]].max(initial=ends[last])
            ends = np.where(np.arange(len(ends)) == last, done, ends)
            between = self._busy.between(self._marks.starts_ns[steps], ends).sum()
        others = members[~self._is_step[members]]
        low, high = (np.searchsorted(self._places, others, side) for side in ("left", "right"))
        some = [self._rows[a:b] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        rows = np.concatenate(some) if some else np.empty(0, np.int64)
        return int(between) + intervals.total(
            *intervals.merge_unsorted(self._starts[rows], self._ends[rows])
        )


def _group(
    labels: list[str], inverse: I8, parents: I8, spans: I8, whole: F8
) -> list[tuple[str, int, int, I8, I8]]:
    """Name, count, host time, device time by side, and positions of the outermost ranges of one name."""
    ids: dict[str, int] = {}
    by_name = np.array([ids.setdefault(label, len(ids)) for label in labels], np.int64)
    keys = by_name[inverse]
    outer = ~nested_in_same(parents, keys)
    rows = []
    for name, key in ids.items():
        members = np.flatnonzero(outer & (keys == key))
        sides = np.rint(whole[members].sum(axis=0)).astype(np.int64)
        rows.append((name, len(members), int(spans[members].sum()), sides, members))
    return sorted(rows, key=lambda row: (-int(row[3].sum()), -row[2]))


def memory_use(details: HostDetails, device_id: int) -> MemoryUse | None:
    """The device's allocator: most in use, when, and what was alive then; None: nothing was recorded."""
    events = details.memory.take(details.memory.device_ids == device_id)
    is_known = events.allocated_bytes >= 0
    if not is_known.any():
        return None
    used = np.where(is_known, events.allocated_bytes, -1)
    peak = int(used.argmax())
    alive = _alive_at(events, peak)
    alive_bytes = int(events.size_bytes[alive].sum())
    reserved = int(events.reserved_bytes[peak])
    edges = np.unique(np.linspace(0, len(used), min(_POINTS, len(used)) + 1).astype(np.int64))
    tops = np.maximum.reduceat(used, edges[:-1])
    return MemoryUse(
        peak_bytes=int(used[peak]),
        peak_at_ns=int(events.times_ns[peak]),
        reserved_bytes=reserved if reserved >= 0 else None,
        before_bytes=max(0, int(used[peak]) - alive_bytes),
        alive=tuple(_alive_rows(details, events.take(alive))),
        times_ns=tuple(events.times_ns[edges[1:] - 1].tolist()),
        allocated_bytes=tuple(tops.tolist()),
    )


def _alive_at(events: MemoryEvents, peak: int) -> I8:
    """Rows of allocations up to the peak whose block was not given back by then."""
    addresses, sizes = events.addresses[: peak + 1], events.size_bytes[: peak + 1]
    order = np.lexsort((np.arange(len(addresses)), addresses))
    last = np.ones(len(order), np.bool_)
    last[:-1] = addresses[order[1:]] != addresses[order[:-1]]
    newest = np.sort(order[last])
    return np.asarray(newest[sizes[newest] > 0])


def _alive_rows(details: HostDetails, events: MemoryEvents) -> list[AliveRow]:
    """By the outermost op that was running when it was asked for."""
    ops, outer = details.ops, np.flatnonzero(details.ops.parents < 0)
    nest = Nest(ops.tids[outer], ops.starts_ns[outer], ops.ends_ns[outer])
    tids, times, sizes = events.tids, events.times_ns, events.size_bytes
    names = picked(ops.name_ids[outer[nest.order]], nest.holder(tids, times, times), -1)
    used, keys = np.unique(names, return_inverse=True)
    amounts, counts = sums(keys, len(used), sizes), np.bincount(keys, minlength=len(used))
    texts = [details.names[i] if i >= 0 else "outside any op" for i in used.tolist()]
    return [
        AliveRow(texts[k], int(amounts[k]), int(counts[k]))
        for k in np.argsort(-amounts, kind="stable")[:_MOST_ALIVE].tolist()
    ]
