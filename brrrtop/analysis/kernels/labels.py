"""Every activity's label: the judgement on its group, spread over the window's columns.

Kernels are judged in groups of one name, geometry and op.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from brrrtop.analysis.ceilings import Ceilings
from brrrtop.analysis.counters import evidence
from brrrtop.analysis.kernels.compute_or_memory import Classifier, Group
from brrrtop.analysis.kernels.written_attention import written_attention
from brrrtop.analysis.signals.inference import decode_tokens
from brrrtop.model.tables import F8, I8, Activities, Window

BUCKETS = ("compute", "memory", "underfilled", "unknown", "comm", "copy")
"""Where time of each side is booked, by the sides' names."""
WORK, COMM, TRANSFER = 0, 1, 2
"""Classes of the sweep line: kernels and on-device copies, collectives, host or peer copies."""
U8 = npt.NDArray[np.uint64]
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


def label(window: Window, ceilings: Ceilings | None) -> Labels:
    """Labels of all activities of the window."""
    acts, op_ids = window.activities, _ops_of(window)
    attention, scores = written_attention(window), np.zeros(len(window.activities), np.bool_)
    if attention is not None:
        scores[attention.products] = True
    decoded = decode_tokens(window)
    tokens = np.zeros(len(acts), np.int64) if decoded is None else decoded
    key = one_number(
        acts.name_ids, scores, tokens, acts.blocks, acts.threads, acts.registers, acts.shared_bytes,
        acts.copy_kinds, op_ids,
    )  # fmt: skip
    _, first, group_of, counts = np.unique(
        key, return_index=True, return_inverse=True, return_counts=True
    )
    durations = np.maximum(acts.ends_ns - acts.starts_ns, 0).astype(np.float64)
    totals = np.bincount(group_of, durations, len(first)).astype(np.int64)
    judge = Classifier(window, ceilings)
    sizes = _mean_sizes(acts, group_of, counts)
    columns = (first, counts, totals, op_ids[first], scores[first], sizes, tokens[first])
    plain = tuple(judge.group(*row) for row in zip(*(c.tolist() for c in columns), strict=True))
    groups = evidence.refined(window, plain, group_of, ceilings)
    return Labels(
        group_of,
        groups,
        np.array([BUCKETS.index(g.side) for g in groups], np.int8)[group_of],
        np.array([max(g.fills, 1e-3) for g in groups], np.float64)[group_of],
    )


def _mean_sizes(acts: Activities, group_of: I8, counts: I8) -> F8:
    """Bytes that a copy of each group moves in the mean; 0 where that of any is not known."""
    known = np.bincount(group_of[acts.size_bytes > 0], minlength=len(counts))
    total = np.bincount(group_of, np.maximum(acts.size_bytes, 0), len(counts))
    return np.where(known == counts, total / np.maximum(counts, 1), 0.0)


def _ops_of(window: Window) -> I8:
    """Op that launched each activity and tells what it does; -1 without one."""
    acts = window.activities
    op_ids = window.links.ops_of(acts.correlations)
    if len(window.links):
        # An op without shapes says nothing of its kernels, and would only part them.
        telling = [op_id for op_id, op in window.ops.items() if op.dims]
        op_ids[~np.isin(op_ids, np.array(telling, np.int64))] = -1
        # All nodes of a CUDA graph carry its launch's id: the op around that is not what a node does.
        op_ids[acts.graph_ids > 0] = -1
    return op_ids


def one_number(*columns: npt.NDArray[Any]) -> U8:
    """A number for each row of columns that is the same for equal rows alone, shape (n,)."""
    key = columns[0].astype(np.uint64)
    for column in columns[1:]:
        key = key * _MIX + column.astype(np.int64).view(np.uint64)
    return key
