"""Columns of a trace → wire records, on one clock, with ids that fit and links that hold."""

from typing import Any

import numpy as np
from msgspec import Struct

from brrrtop.model.host_tables import HostDetails
from brrrtop.model.intervals import Nest
from brrrtop.model.tables import I8, Bool
from brrrtop.sources.importers.trace import host
from brrrtop.sources.importers.trace import names as kineto_names
from brrrtop.sources.importers.trace.columns import (
    CALL,
    COLUMNS,
    COPY,
    FRAME,
    KERNEL,
    MEMORY,
    OP,
    OVERHEAD,
    RANGE,
    Array,
    Collected,
    Columns,
)
from brrrtop.sources.importers.trace.host import records_of, rows_of
from brrrtop.sources.importers.trace.joins import (
    correlate_by_external,
    in_u32,
    op_of_launch,
    part_processes,
    unique_correlations,
)
from brrrtop.sources.importers.trace.names import sendable, signatures_of
from brrrtop.sources.source import malloc_trim
from collectors.protocol import frames as wire
from collectors.protocol.frames import FARTHEST_NS, LINK, Kind
from collectors.vocabulary import CallClass, CopyKind, MarkClass

_LAUNCHING = (CallClass.LAUNCH, CallClass.GRAPH_LAUNCH, CallClass.COPY)
_SENT = (Kind.CALLS, Kind.LINKS, Kind.MARKS, Kind.KERNELS, Kind.COPIES)
_U16, _U32, _I32 = (1 << 16) - 1, (1 << 32) - 1, (1 << 31) - 1


class Records(Struct, frozen=True, eq=False):
    """A trace as wire arrays, each sorted by end, and what they refer to."""

    tables: dict[Kind, tuple[Array, I8]]
    """Calls, links, marks, kernels and copies, in the order in which they are sent, with their ends. Links
    are one a launch that some activity came from; they end with the launching call, or with the activity
    where that was not recorded."""
    names: dict[int, str]
    ops: list[list[Any]]
    """`[id, name, dims, types, concrete]`, and `strides` where they are told"""
    silent: int
    """Launches that were to be expected and are not there: ops without one, by how many others
    like them have. What a trace lacks that breaks off."""
    details: HostDetails
    """Ops, Python frames and memory, which are sent in no frame."""
    threads: dict[int, list[int]]
    """Of the process of each device, where the trace is of several processes with a device each."""


def _tables(collected: Collected, base_ns: int) -> list[Columns]:
    """Kernels, copies, calls, ops, ranges of old traces, ranges, overheads, frames and memory."""
    ops, old_ranges = collected.split_ranges(collected.concat(OP))
    tables = [*map(collected.concat, (KERNEL, COPY, CALL)), ops, old_ranges]
    malloc_trim()  # the batches lay between each other
    tables += map(collected.concat, (RANGE, OVERHEAD, FRAME, MEMORY))
    return _on_one_clock(collected, tables, base_ns)


def build(collected: Collected, base_ns: int) -> Records:
    """Joins and sorts; afterwards `collected` is used up."""
    kernels, copies, calls, ops, old_ranges, ranges, overheads, frames, memory = _tables(
        collected, base_ns
    )
    correlate_by_external([kernels, copies], calls)
    threads = part_processes(
        [kernels, copies], calls, [ops, old_ranges, ranges, overheads, frames, memory]
    )
    names = list(collected.names)
    range_marks = [host.ranges(table, names) for table in (ranges, old_ranges)]
    sampled = host.stack_samples(frames, kernels, copies, collected.names, _begins(range_marks))
    names = list(collected.names)  # with those of the stacks
    classes = np.fromiter(map(kineto_names.call_class, names), np.int64, len(names))
    call_classes = classes[calls["name_id"]]
    _tell_apart(kernels, copies, calls, np.isin(call_classes, _LAUNCHING))
    if not collected.counts_blocks:
        kineto_names.grids_in_blocks(kernels, calls, names)
    shaped, signatures, strides = signatures_of(collected.signatures)
    nest = Nest(ops["tid"], ops["start_ns"], ops["end_ns"])
    launches = _launches(kernels, copies, calls)
    tables = {Kind.KERNELS: _by_end(_kernels(kernels))}
    kernels.clear()  # columns of millions of rows go as soon as they are not needed
    positions = op_of_launch(nest, ops.pop("external"), launches)
    by_position = ops.pop("signature")[nest.order]
    described = nest.innermost(positions, shaped[by_position])
    described = np.where(described >= 0, described, positions)
    links, sent = _links(launches, described, by_position)
    silent = _silent(by_position, positions)
    host_details = host.details_of(
        names, signatures, ops, nest, by_position, (launches["correlation"], positions), frames, memory
    )  # fmt: skip
    del launches, described, positions, by_position, frames, memory
    copy_kinds = np.array([kineto_names.copy_kinds(name) for name in names], np.int64)
    uploads = copies["correlation"][copy_kinds[copies["name_id"], 0] == CopyKind.HTOD]
    marks = [
        *range_marks,
        host.compiles([ops, ranges], names),
        host.of_class(overheads, MarkClass.OTHER),
        sampled,
        host.outermost(ops, nest),
        host.waits(nest, ops, calls, call_classes, uploads, names),
    ]
    ops.clear()
    del nest
    tables |= {
        Kind.COPIES: _by_end(_copies(copies, copy_kinds)),
        Kind.CALLS: _by_end(_calls(calls, call_classes)),
        Kind.MARKS: _by_end(np.concatenate(marks)),
        Kind.LINKS: links,
    }
    return Records(
        tables={kind: tables[kind] for kind in _SENT},
        names=dict(enumerate(names)),
        ops=[sendable(s + 1, signatures[s], strides[s]) for s in sent.tolist()],
        silent=silent,
        details=host_details,
        threads=threads,
    )


def _begins(range_marks: list[Any]) -> I8:
    """Of the steps that ranges name."""
    steps = [mark["start_ns"][mark["mark_class"] == MarkClass.STEP] for mark in range_marks]
    return np.concatenate(steps).astype(np.int64)


def _silent(signatures: I8, positions: I8) -> int:
    """Launches missing below ops.

    Args:
        signatures: Of all ops, in the nest's order: the same call on the CPU has another.
        positions: The op of each launch, -1 without one.
    """
    linked, size = positions[positions >= 0], int(signatures.max(initial=-1)) + 1
    launches = np.bincount(signatures[linked], minlength=size)
    launching = np.zeros(len(signatures), np.bool_)
    launching[linked] = True
    loud = np.bincount(signatures[launching], minlength=size)
    bare = np.bincount(signatures, minlength=size) - loud
    each = launches / np.maximum(loud, 1)
    return round(float((bare * each).sum()))


def _empty() -> Columns:
    ids = ["name_id", "tid", "pid", "external", "signature", "start_ns", "end_ns"]
    ids += [name for columns in COLUMNS.values() for name in columns]
    columns: Columns = {key: np.zeros(0, np.int64) for key in ids}
    return {**columns, "grid": np.zeros((0, 3), np.int64), "block": np.zeros((0, 3), np.int64)}


def _on_one_clock(collected: Collected, tables: list[Columns], base_ns: int) -> list[Columns]:
    """Drops what is far from everything else, adds the base time, keeps all times positive."""
    tables = [table or _empty() for table in tables]
    starts = [t["start_ns"] for t in tables if len(t["start_ns"])]
    acts = [t["start_ns"] for t in tables[:2] if len(t["start_ns"])]
    if not starts:
        return tables
    times = np.concatenate(acts or starts)
    middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
    kept = []
    for index, table in enumerate(tables):
        low, high = middle - FARTHEST_NS, middle + FARTHEST_NS
        near = (table["start_ns"] >= low) & (table["start_ns"] <= high)
        far = int((~near).sum())
        if far:
            collected.lose("impossible time or duration", far)
            if index < 2:
                collected.lose("records", far)
            table = rows_of(table, near)
        kept.append(table)
    first = min(int(t["start_ns"].min()) for t in kept if len(t["start_ns"]))
    shift = base_ns if 0 < first + base_ns < 1 << 62 else 1 - first
    for table in kept:
        table["start_ns"] = table["start_ns"] + shift
        table["end_ns"] = table["end_ns"] + shift
    return kept


def _tell_apart(kernels: Columns, copies: Columns, calls: Columns, launching: Bool) -> None:
    """Makes ids fit u32 and correlations unique among calls, in place."""
    for key in ("stream", "graph"):
        kernels[key], copies[key] = in_u32(kernels[key], copies[key])
    count = len(kernels["correlation"])
    call_ids, kernel_ids, copy_ids = in_u32(
        calls["correlation"], kernels["correlation"], copies["correlation"]
    )
    calls["correlation"], act_ids = unique_correlations(
        call_ids, calls["start_ns"], launching, np.concatenate([kernel_ids, copy_ids]),
        np.concatenate([kernels["start_ns"], copies["start_ns"]]),
    )  # fmt: skip
    kernels["correlation"], copies["correlation"] = act_ids[:count], act_ids[count:]


def _launches(kernels: Columns, copies: Columns, calls: Columns) -> Columns:
    """One row a correlation that some activity has; times and thread of its call, if recorded."""
    acts = {
        key: np.concatenate([kernels[key], copies[key]])
        for key in ("correlation", "external", "start_ns", "end_ns")
    }
    ids, first = np.unique(acts["correlation"], return_index=True)
    first = first[ids != 0]
    ids = ids[ids != 0]
    order = np.argsort(calls["correlation"], kind="stable")
    at = np.searchsorted(calls["correlation"], ids, sorter=order)
    rows = np.append(order, -1)[at]  # -1: beyond the last, as a row of nothing
    keys = ("correlation", "tid", "external", "start_ns", "end_ns")
    made = {key: np.append(calls[key], 0)[rows] for key in keys}
    known = made["correlation"] == ids
    return {
        "correlation": ids,
        "tid": np.where(known, made["tid"], -1),
        "start_ns": np.where(known, made["start_ns"], acts["start_ns"][first]),
        "end_ns": np.where(known, made["end_ns"], acts["end_ns"][first]),
        "external": np.where(
            known & (made["external"] != 0), made["external"], acts["external"][first]
        ),
    }


def _links(launches: Columns, positions: I8, signatures: I8) -> tuple[tuple[Array, I8], I8]:
    """Link records by time with their times, and the signatures they use."""
    has_launch = positions >= 0
    order = np.argsort(launches["end_ns"][has_launch], kind="stable")
    used = signatures[positions[has_launch]][order]
    links = np.zeros(len(order), LINK)
    links["correlation"] = launches["correlation"][has_launch][order]
    links["op_id"] = used + 1
    return (links, launches["end_ns"][has_launch][order]), np.flatnonzero(np.bincount(used))


def _by_end(records: Array) -> tuple[Array, I8]:
    ends = np.ascontiguousarray(records["end_ns"])
    if len(ends) > 1 and (ends[1:] < ends[:-1]).any():
        order = np.argsort(ends, kind="stable")
        return records[order], ends[order]
    return records, ends


def _activity(dtype: np.dtype[Any], table: Columns) -> Array:
    table["device"] = np.clip(table["device"], -1, _I32)
    return records_of(
        dtype, table, ("start_ns", "end_ns", "correlation", "device", "stream", "graph")
    )


def _kernels(table: Columns) -> Array:
    records = _activity(wire.KERNEL, table)
    records["name_id"] = table["name_id"]
    records["grid"] = np.clip(table["grid"], 0, _I32)
    records["block"] = np.clip(table["block"], 0, _I32)
    records["shared_bytes"] = np.clip(table["shared_bytes"], 0, _U32)
    records["registers"] = np.clip(table["registers"], 0, _U16)
    records["channel"] = np.clip(table["channel"], 0, _U32)
    records["graph_node"] = np.maximum(table["graph_node"], 0)
    return records


def _copies(table: Columns, kinds: I8) -> Array:
    records = _activity(wire.COPY, table)
    for column, key in enumerate(("copy_kind", "src_kind", "dst_kind")):
        records[key] = kinds[table["name_id"], column]
    records["size_bytes"] = np.maximum(table["size_bytes"], 0)
    return records


def _calls(table: Columns, classes: I8) -> Array:
    records = records_of(wire.CALL, table, ("start_ns", "end_ns", "correlation", "tid", "name_id"))
    records["call_class"] = classes
    return records
