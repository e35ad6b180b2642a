"""The op table: what each framework op took on the host and on the device, by name and by shapes."""

import json
from typing import Any

import numpy as np
from msgspec import Struct

from brrrtop.analysis.facts.table import BUCKETS, Facts
from brrrtop.kernel_names.traits import used
from brrrtop.model.host_tables import HostDetails, OpRow
from brrrtop.model.tables import F8, I8, Bool

_MOST_SHAPES = 200
"""Characters of a row's shapes."""


def with_ancestors(own: F8 | I8, parents: I8) -> F8:
    """Each row's own amount and that of all below it.

    Args:
        own: Shape (n,) or (n, k), of rows in which a parent comes before what it holds.
        parents: -1: none.
    """
    total: F8 = own.astype(np.float64)
    depths = depths_of(parents)
    for depth in range(int(depths.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depths == depth)
        np.add.at(total, parents[rows], total[rows])
    return total


def depths_of(parents: I8) -> I8:
    """0 for outermost rows."""
    depths = np.zeros(len(parents), np.int64)
    at, rows = parents.copy(), np.flatnonzero(parents >= 0)
    while len(rows):
        depths[rows] += 1
        at[rows] = parents[at[rows]]
        rows = rows[at[rows] >= 0]
    return depths


def nested_in_same(parents: I8, keys: I8) -> Bool:
    """Rows with another row of the same key around them."""
    inside = np.zeros(len(parents), np.bool_)
    at, rows = parents.copy(), np.flatnonzero(parents >= 0)
    while len(rows):
        inside[rows] |= keys[at[rows]] == keys[rows]
        at[rows] = parents[at[rows]]
        rows = rows[(at[rows] >= 0) & ~inside[rows]]
    return inside


def sums(keys: I8, size: int, values: I8 | F8) -> I8:
    return np.rint(np.bincount(keys, values, size)).astype(np.int64)


def sides_by(keys: I8, size: int, work: Facts, rows: I8) -> I8:
    """Shape (size, sides): device time of activities by key and side."""
    flat = keys * len(BUCKETS) + work.sides[rows]
    return sums(flat, size * len(BUCKETS), work.durations_ns[rows]).reshape(size, len(BUCKETS))


def named_sides(row: I8) -> dict[str, int]:
    return {side: int(ns) for side, ns in zip(BUCKETS, row.tolist(), strict=True) if ns}


class OpTimes(Struct, frozen=True, eq=False):
    rows: I8
    """Activities whose op is known."""
    ops: I8
    """Of each of `rows`."""
    cpu_ns: I8
    cpu_self_ns: I8
    device_self_ns: F8
    device_ns: F8
    launches: I8
    inside: Bool
    """Lies in the window."""


def op_times(details: HostDetails, work: Facts) -> OpTimes:
    """What each call of an op took; ops outside the window have nothing."""
    ops, span = details.ops, work.window.span
    count = len(ops)
    inside = (ops.ends_ns > span.t0_ns) & (ops.starts_ns < span.t1_ns)
    launching = details.launches.ops_of(work.window.activities.correlations)
    rows = np.flatnonzero(launching >= 0)
    launching = launching[rows]
    inside[launching] = True  # launched before the window, and ran in it
    cpu = ops.ends_ns - ops.starts_ns
    has_parent = ops.parents >= 0
    below = sums(ops.parents[has_parent], count, cpu[has_parent])
    own: F8 = np.bincount(launching, work.durations_ns[rows], count).astype(np.float64)
    return OpTimes(
        rows, launching, cpu, np.maximum(cpu - below, 0), own, with_ancestors(own, ops.parents),
        np.bincount(launching, minlength=count), inside,
    )  # fmt: skip


def by_name(
    details: HostDetails, times: OpTimes, modules: I8, places: I8, texts: Any
) -> list[OpRow]:
    """A row a name.

    Args:
        modules, places: Per activity of `times.rows`: into `texts`, -1 where none was recorded.
        texts: Names of modules and Python functions by their ids.
    """
    ids = used(details.ops.name_ids)
    keys = np.searchsorted(ids, details.ops.name_ids)
    named = [(details.names[i], None) for i in ids.tolist()]
    work = times.device_self_ns[times.ops] / np.maximum(times.launches[times.ops], 1)
    homes = [_most_common(keys[times.ops], column, work, len(ids)) for column in (modules, places)]
    texts_of = [[texts[i] if i >= 0 else None for i in column.tolist()] for column in homes]
    texts_of[0] = [name and name.removeprefix("nn.Module: ") for name in texts_of[0]]
    return _rows(details, times, keys, named, texts_of)


def by_shapes(details: HostDetails, times: OpTimes) -> list[OpRow]:
    ids = used(details.ops.signature_ids)
    keys = np.searchsorted(ids, details.ops.signature_ids)
    named = [details.signatures.get(i, ("", [])) for i in ids.tolist()]
    if not any(shapes for _, shapes in named):
        return []
    texts = [(name, _text(shapes)) for name, shapes in named]
    nothing: list[str | None] = [None] * len(texts)
    return _rows(details, times, keys, texts, [nothing, nothing])


def _text(shapes: Any) -> str:
    text = json.dumps(shapes, separators=(",", ":"))
    return text if len(text) <= _MOST_SHAPES else text[: _MOST_SHAPES - 1] + "…"


def _rows(
    details: HostDetails, times: OpTimes, keys: I8, named: list[tuple[str, Any]],
    homes: list[list[str | None]],
) -> list[OpRow]:  # fmt: skip
    """Sums by key, without what is outside the window and without counting nested calls twice."""
    size = len(named)
    outer = times.inside & ~nested_in_same(details.ops.parents, keys)
    inside = times.inside
    counts = np.bincount(keys[inside], minlength=size)
    columns = (
        sums(keys[outer], size, times.cpu_ns[outer]),
        sums(keys[inside], size, times.cpu_self_ns[inside]),
        sums(keys[outer], size, times.device_ns[outer]),
        sums(keys[inside], size, times.device_self_ns[inside]),
        sums(keys[inside], size, times.launches[inside]),
    )
    order = np.lexsort((-columns[1], -columns[3]))
    return [
        OpRow(
            name=named[row][0], count=int(counts[row]), cpu_total_ns=int(columns[0][row]),
            cpu_self_ns=int(columns[1][row]), device_total_ns=int(columns[2][row]),
            device_self_ns=int(columns[3][row]), launches=int(columns[4][row]),
            shapes=named[row][1], module=homes[0][row], place=homes[1][row],
        )
        for row in order[counts[order] > 0].tolist()
    ]  # fmt: skip


def _most_common(keys: I8, values: I8, weights: F8, size: int) -> I8:
    """The value with the most weight of each key; -1: it has none."""
    winners = np.full(size, -1, np.int64)
    is_known = values >= 0
    if not is_known.any():
        return winners
    span = int(values.max()) + 1
    pairs, at = np.unique(keys[is_known] * span + values[is_known], return_inverse=True)
    totals = np.bincount(at, weights[is_known], len(pairs))
    order = np.argsort(totals, kind="stable")
    winners[pairs[order] // span] = pairs[order] % span
    return winners
