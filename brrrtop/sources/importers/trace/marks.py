"""Marks of a trace: ranges by name, compiles, outermost ops, and waits inside ops."""

from __future__ import annotations

from typing import Any

import numpy as np

from brrrtop.model import intervals
from brrrtop.model.intervals import Nest
from brrrtop.model.tables import I8
from brrrtop.sources.importers.trace import names as kineto_names
from brrrtop.sources.importers.trace.columns import Array, Columns
from collectors.protocol.frames import MARK
from collectors.vocabulary import CallClass, MarkClass


def rows_of(table: Columns, rows: Array) -> Columns:
    """Some rows of every column."""
    return {key: column[rows] for key, column in table.items()}


def records_of(dtype: np.dtype[Any], table: Columns, keys: tuple[str, ...]) -> Array:
    """Records with the named columns, the rest zero."""
    records = np.zeros(len(table["start_ns"]), dtype)
    for key in keys:
        records[key] = table[key]
    return records


def of_class(table: Columns, mark_class: MarkClass) -> Array:
    """One mark a row."""
    records = records_of(MARK, table, ("start_ns", "end_ns", "tid", "name_id"))
    records["mark_class"] = mark_class
    return records


def ranges(table: Columns, names: list[str]) -> Array:
    """Ranges classed by their names. Compiles are left to `compiles`."""
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
