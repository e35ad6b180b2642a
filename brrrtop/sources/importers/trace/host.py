"""What a trace knows of the host beyond calls: marks (ranges by name, compiles, outermost ops, waits inside
ops), stack samples, and ops, Python frames and memory as tables, which no frame carries.
"""

from typing import Any

import numpy as np

from brrrtop.model import intervals
from brrrtop.model.host_tables import HostDetails, HostOps, MemoryEvents, PythonFrames
from brrrtop.model.intervals import Nest
from brrrtop.model.tables import I8, Links
from brrrtop.sources.importers.trace import names as kineto_names
from brrrtop.sources.importers.trace.columns import Array, Columns, Interned
from brrrtop.text.units import is_users, placed
from collectors.printable import printable
from collectors.protocol.frames import MARK
from collectors.vocabulary import CallClass, MarkClass


def rows_of(table: Columns, rows: Array) -> Columns:
    return {key: column[rows] for key, column in table.items()}


def records_of(dtype: np.dtype[Any], table: Columns, keys: tuple[str, ...]) -> Array:
    records = np.zeros(len(table["start_ns"]), dtype)
    for key in keys:
        records[key] = table[key]
    return records


def of_class(table: Columns, mark_class: MarkClass) -> Array:
    records = records_of(MARK, table, ("start_ns", "end_ns", "tid", "name_id"))
    records["mark_class"] = mark_class
    return records


def ranges(table: Columns, names: list[str]) -> Array:
    records = of_class(table, MarkClass.ANNOTATION)
    used, inverse = np.unique(table["name_id"], return_inverse=True)
    classes = np.array([kineto_names.mark_class(names[i]) for i in used], np.int64).reshape(-1, 2)
    records["mark_class"] = classes[inverse, 0]
    records["value"] = classes[inverse, 1]
    kept: Array = records[records["mark_class"] != MarkClass.COMPILE]
    return kept


def compiles(tables: list[Columns], names: list[str]) -> Array:
    """One mark a compile: the outermost ranges of torch.compile at work, on whatever thread.

    The compiled code that its thread runs next, "Torch-Compiled Region: 0/2", tells which frame
    was compiled and how often before: the mark takes its name, and 2 as its value.
    """
    compiling = np.fromiter(map(kineto_names.is_compile, names), np.bool_, len(names))
    parts = [of_class(rows_of(t, compiling[t["name_id"]]), MarkClass.COMPILE) for t in tables]
    records = np.concatenate(parts)
    if not len(records):
        return records
    nest = Nest(np.zeros(len(records), np.int64), records["start_ns"], records["end_ns"])
    records = records[nest.order[nest.parents < 0]]
    again = np.fromiter(map(kineto_names.recompiles, names), np.int64, len(names))
    for table in tables:
        _name_by_region(records, rows_of(table, again[table["name_id"]] >= 0), again)
    return records


def _name_by_region(records: Array, regions: Columns, again: I8) -> None:
    """Names the compiles of each thread, sorted by start, by that thread's first region after each.

    One that begins only after the thread's next compile is that one's.
    """
    tids, ends = records["tid"].astype(np.int64), records["end_ns"]
    rows = intervals.latest_before(regions["tid"], -regions["start_ns"], tids, -ends)
    order = np.argsort(tids, kind="stable")
    same = tids[order][1:] == tids[order][:-1]
    next_starts = np.full(len(records), np.iinfo(np.int64).max)
    next_starts[order[:-1][same]] = records["start_ns"][order[1:][same]]
    known = np.flatnonzero(rows >= 0)
    begun = regions["start_ns"][rows[known]]
    known = known[(begun >= ends[known]) & (begun <= next_starts[known])]
    name_ids = regions["name_id"][rows[known]]
    records["name_id"][known] = name_ids
    records["value"][known] = again[name_ids]


def outermost(ops: Columns, nest: Nest) -> Array:
    """Ops that no other op of their thread holds."""
    return of_class(rows_of(ops, nest.order[nest.parents < 0]), MarkClass.OP)


def waits(
    nest: Nest, ops: Columns, calls: Columns, classes: I8, uploads: Array, names: list[str]
) -> Array:
    """Ops that read something back and waited for it; uploads (correlations) that wait are not meant."""
    reads = np.fromiter(map(kineto_names.reads_back, names), np.bool_, len(names))
    wanted = reads[ops["name_id"]][nest.order]
    at = np.flatnonzero(classes == CallClass.SYNC)
    holders = nest.holder(calls["tid"][at], calls["start_ns"][at], calls["end_ns"][at])
    outer = np.unique(nest.outermost(holders, wanted))
    up = np.flatnonzero(np.isin(calls["correlation"], uploads[uploads != 0]))
    holders = nest.holder(calls["tid"][up], calls["start_ns"][up], calls["end_ns"][up])
    outer = np.setdiff1d(outer[outer >= 0], nest.outermost(holders, wanted))
    return of_class(rows_of(ops, nest.order[outer]), MarkClass.PYTHON_SYNC)


SAMPLES = 400
LEAST_GAP_NS = 20_000
"""Between kernels of a queue that is never empty there are shorter ones."""
_MEMORY = "[memory]"
_CUDA = 1
"""`c10::DeviceType`."""


def details_of(
    names: list[str],
    signatures: list[list[Any]],
    ops: Columns,
    nest: Nest,
    signature_ids: I8,
    launches: tuple[I8, I8],
    frames: Columns,
    memory: Columns,
) -> HostDetails:
    """The columns as tables.

    Args:
        names: By name id.
        signatures: `[name, dims, types, concrete]` by signature.
        ops: In the order of the trace; `nest` is of these.
        signature_ids: Of each op, in the nest's order.
        launches: Sorted correlations, and the position in the nest of the op behind each; -1: none.
    """
    order = nest.order
    return HostDetails(
        names=tuple(printable(name) for name in names),
        signatures={
            row: (printable(signature[0]), signature[1]) for row, signature in enumerate(signatures)
        },
        ops=HostOps(
            starts_ns=ops["start_ns"][order],
            ends_ns=ops["end_ns"][order],
            tids=ops["tid"][order],
            name_ids=ops["name_id"][order],
            signature_ids=signature_ids,
            parents=nest.parents,
            sequences=ops["sequence"][order],
            backward=ops["forward_tid"][order] > 0,
        ),
        launches=Links(*launches),
        frames=PythonFrames(*(frames[key] for key in ("start_ns", "end_ns", "tid", "name_id"))),
        memory=_memory(memory, names),
    )


def _memory(table: Columns, names: list[str]) -> MemoryEvents:
    telling = np.fromiter((name == _MEMORY for name in names), np.bool_, len(names))
    rows = np.flatnonzero(telling[table["name_id"]] & (table["device_type"] == _CUDA))
    rows = rows[np.argsort(table["start_ns"][rows], kind="stable")]
    keys = ("start_ns", "tid", "memory_device", "address", "memory_bytes", "allocated", "reserved")
    return MemoryEvents(*(table[key][rows] for key in keys))


def stack_samples(
    frames: Columns, kernels: Columns, copies: Columns, names: Interned, steps: I8
) -> Array:
    """One mark an instant at which the device idles, evenly spaced over that time; none without frames.

    They are the marks that a live trainer's sampler sends, so that whatever reads those reads these.

    Args:
        names: Grows by the stacks.
        steps: Starts of the profiler's steps: the device idles from the first one on.
    """
    starts = np.concatenate([kernels["start_ns"], copies["start_ns"]])
    ends = np.concatenate([kernels["end_ns"], copies["end_ns"]])
    if not len(frames["start_ns"]) or not len(starts):
        return np.zeros(0, MARK)
    busy = intervals.merge_unsorted(starts, ends)
    begin = int(min(steps.min(initial=busy[0][0]), busy[0][0]))
    low, high = np.concatenate(([begin], busy[1][:-1])), busy[0]
    low, high = low[high - low >= LEAST_GAP_NS], high[high - low >= LEAST_GAP_NS]
    whole = int((high - low).sum())
    if not whole:
        return np.zeros(0, MARK)
    tids, counts = np.unique(frames["tid"], return_counts=True)
    points = _spread(low, high, whole)
    stacks = _stacks(frames, int(tids[counts.argmax()]), points, list(names))
    known = [row for row, stack in enumerate(stacks) if stack]
    marks = np.zeros(len(known), MARK)
    marks["start_ns"] = marks["end_ns"] = points[known]
    marks["tid"] = tids[counts.argmax()]
    marks["name_id"] = [names[stacks[row]] for row in known]
    marks["mark_class"] = MarkClass.STACK
    return marks


def _spread(low: I8, high: I8, whole: int) -> I8:
    before = np.concatenate(([0], np.cumsum(high - low)))
    offsets = (np.arange(SAMPLES, dtype=np.float64) + 0.5) * (whole / SAMPLES)
    at = np.searchsorted(before, offsets, "right") - 1
    return np.asarray(low[at] + (offsets - before[at]).astype(np.int64))


def _stacks(frames: Columns, tid: int, points: I8, names: list[str]) -> list[str]:
    """`train.py:12 fetch > <built-in function sleep>` of each instant; empty outside the user's code."""
    of_thread = np.flatnonzero(frames["tid"] == tid)
    nest = Nest(
        np.zeros(len(of_thread), np.int64),
        frames["start_ns"][of_thread],
        frames["end_ns"][of_thread],
    )
    name_ids = frames["name_id"][of_thread][nest.order]
    own = np.zeros(len(names), np.bool_)
    used = np.unique(name_ids)
    own[used] = [is_users(names[i]) for i in used.tolist()]
    innermost = nest.holder(np.zeros(len(points), np.int64), points, points)
    at = nest.innermost(innermost, own[name_ids])
    stacks = []
    for user, inner in zip(at.tolist(), innermost.tolist(), strict=True):
        stack = placed(names[name_ids[user]]) if user >= 0 else ""
        if stack and inner != user:
            stack += f" > {placed(names[name_ids[inner]])}"
        stacks.append(stack)
    return stacks
