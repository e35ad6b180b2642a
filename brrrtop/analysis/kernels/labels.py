"""Every activity's label: the judgement on its group, spread over the window's columns.

Kernels are judged in groups of one name, geometry and op.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.ceilings import Ceilings
from brrrtop.analysis.counters import evidence
from brrrtop.analysis.kernels.classifier import Classifier, Group
from brrrtop.analysis.kernels.twins import twin_groups
from brrrtop.analysis.kernels.written_attention import written_attention
from brrrtop.model.tables import F8, I8, Activities, ActivityType, Bool, Window

BUCKETS = ("compute", "memory", "underfilled", "unknown", "comm", "copy")
"""Where time of each side is booked, by the sides' names."""
WORK, COMM, TRANSFER = 0, 1, 2
"""Classes of the sweep line: kernels and on-device copies, collectives, host or peer copies."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Labels(Struct, frozen=True, eq=False):
    """Per activity of a window, shape (n,) each, plus the groups they index."""

    group_of: I8
    groups: tuple[Group, ...]
    buckets: npt.NDArray[np.int8]
    """Into `BUCKETS`."""
    weights: F8
    """For charging time that kernels share: share of the SMs."""

    @property
    def classes(self) -> npt.NDArray[np.int8]:
        """`WORK`, `COMM` or `TRANSFER`."""
        return np.maximum(self.buckets - 3, WORK)  # the first four are work

    def take(self, rows: I8) -> Labels:
        """Those of some of the activities."""
        return Labels(self.group_of[rows], self.groups, self.buckets[rows], self.weights[rows])


class _Grouping(Struct, frozen=True, eq=False):
    """Equal kernels: shape (n,) and (g,)."""

    group_of: I8
    first: I8
    counts: I8
    totals_ns: I8
    """Time at work: what a kernel waited for its predecessor on the stream is left out."""
    op_ids: I8
    """Per activity; -1: no op known."""
    scores: Bool | None
    """Per activity: a product of attention written out; None where there is none."""


def label(window: Window, ceilings: Ceilings | None) -> Labels:
    """Labels of all activities of the window."""
    grouping = _group(window)
    judge = Classifier(window, ceilings)
    scores = grouping.scores
    sizes = _mean_sizes(window.activities, grouping)
    groups = tuple(
        judge.group(
            row,
            count,
            total,
            int(grouping.op_ids[row]),
            scores is not None and bool(scores[row]),
            size,
        )
        for row, count, total, size in zip(
            grouping.first.tolist(),
            grouping.counts.tolist(),
            grouping.totals_ns.tolist(),
            sizes.tolist(),
            strict=True,
        )
    )
    group_of = grouping.group_of
    groups = evidence.refined(window, groups, group_of, ceilings)
    return Labels(
        group_of,
        groups,
        np.array([BUCKETS.index(g.side) for g in groups], np.int8)[group_of],
        np.array([max(g.fills, 1e-3) for g in groups], np.float64)[group_of],
    )


def _mean_sizes(acts: Activities, grouping: _Grouping) -> npt.NDArray[np.float64]:
    """Bytes that a copy of each group moves in the mean; 0 where that of any is not known."""
    groups = len(grouping.first)
    known = np.bincount(grouping.group_of[acts.size_bytes > 0], minlength=groups)
    total = np.bincount(grouping.group_of, np.maximum(acts.size_bytes, 0), groups)
    return np.where(known == grouping.counts, total / np.maximum(grouping.counts, 1), 0.0)


def _group(window: Window) -> _Grouping:
    """Equal activities, and the op of each."""
    acts = window.activities
    op_ids = window.links.ops_of(acts.correlations)
    if len(window.links):
        # An op without shapes says nothing of its kernels, and would only part them.
        telling = [op_id for op_id, op in window.ops.items() if op.dims]
        op_ids[~np.isin(op_ids, np.array(telling, np.int64))] = -1
        # All nodes of a CUDA graph carry its launch's id: the op around that is not what a node does.
        op_ids[acts.graph_ids > 0] = -1
    attention, scores = written_attention(window), None
    if attention is not None:
        scores = np.zeros(len(acts), np.bool_)
        scores[attention.products] = True
    key = _key(acts, scores)
    _, first, inverse, counts = np.unique(
        key * _MIX + op_ids.view(np.uint64),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    totals = np.bincount(inverse, _at_work(acts).astype(np.float64), len(first)).astype(np.int64)
    grouping = _Grouping(inverse.astype(np.int64), first, counts, totals, op_ids, scores)
    return _with_twins(window, grouping, key[first]) if len(window.links) else grouping


def _with_twins(window: Window, grouping: _Grouping, key: npt.NDArray[np.uint64]) -> _Grouping:
    """Kernels without an op put to those of the group that they are the same as."""
    acts, first = window.activities, grouping.first
    bare = (acts.types[first] == ActivityType.KERNEL) & (acts.graph_ids[first] == 0)
    bare &= grouping.op_ids[first] < 0
    means = grouping.totals_ns / grouping.counts
    targets = twin_groups(window, key, grouping.op_ids[first], means, bare)
    kept, place = np.unique(targets, return_inverse=True)
    if len(kept) == len(targets):
        return grouping
    counts, totals = (
        np.bincount(place, column.astype(np.float64), len(kept)).astype(np.int64)
        for column in (grouping.counts, grouping.totals_ns)
    )
    return replace(
        grouping,
        group_of=place[grouping.group_of],
        first=first[kept],
        counts=counts,
        totals_ns=totals,
    )


def _key(acts: Activities, scores: Bool | None) -> npt.NDArray[np.uint64]:
    """One number for a name, its place and a geometry; shape (n,)."""
    key: npt.NDArray[np.uint64] = acts.name_ids.astype(np.uint64)
    if scores is not None:
        key = key * np.uint64(2) + scores
    for column in (
        acts.blocks, acts.threads, acts.registers, acts.shared_bytes, acts.copy_kinds,
    ):  # fmt: skip
        key = key * _MIX + column.astype(np.int64).view(np.uint64)
    return key


def _at_work(acts: Activities) -> I8:
    """Durations less what a kernel was resident while its predecessor on the stream still ran.

    Programmatic dependent launch (CUDA programming guide) starts the next kernel of a stream early; it
    then waits inside.
    """
    durations: I8 = np.maximum(acts.ends_ns - acts.starts_ns, 0)
    if len(acts) < 2:
        return durations
    reach = np.maximum.accumulate(acts.ends_ns)
    late = np.flatnonzero(acts.starts_ns[1:] < reach[:-1]) + 1
    if not len(late):
        return durations
    # Whatever overlaps is late, or the first of those that do.
    crowd = np.union1d(late, late - 1)
    order = crowd[np.lexsort((acts.starts_ns[crowd], acts.stream_ids[crowd]))]
    same = acts.stream_ids[order[1:]] == acts.stream_ids[order[:-1]]
    start = acts.starts_ns[order[1:]]
    start = np.where(same, np.maximum(start, acts.ends_ns[order[:-1]]), start)
    durations[order[1:]] = np.maximum(acts.ends_ns[order[1:]] - start, 1)
    return durations
