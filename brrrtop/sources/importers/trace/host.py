"""What a trace knows of the host beyond calls: ops, Python frames and memory as tables, which no frame
carries, and stack samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from brrrtop.model import intervals
from brrrtop.model.host_details import HostDetails, HostOps, MemoryEvents, PythonFrames
from brrrtop.model.intervals import Nest
from brrrtop.model.tables import I8, Links
from brrrtop.sources.importers.trace.columns import Array, Columns, Interned
from brrrtop.text.units import is_users, placed
from collectors.printable import printable
from collectors.protocol.frames import MARK
from collectors.vocabulary import MarkClass

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
        signatures={row: (printable(one[0]), one[1]) for row, one in enumerate(signatures)},
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
    """Events of GPUs' allocators; those of the CPU and of running out are left out."""
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
    mine = np.flatnonzero(frames["tid"] == tid)
    nest = Nest(np.zeros(len(mine), np.int64), frames["start_ns"][mine], frames["end_ns"][mine])
    name_ids = frames["name_id"][mine][nest.order]
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
