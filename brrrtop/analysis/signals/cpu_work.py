"""Arithmetic of the framework on the host while the device idles: ops that launch nothing.

An op on CPU tensors within a gap of the device is work that the device waits for, as the average of
weights that was copied to the host. Only a profiler records ops; without them nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.signals.checkpoints import READ_BACK_BYTES
from brrrtop.analysis.signals.joined import Joined
from brrrtop.analysis.signals.syncs import dearest_names
from brrrtop.model.tables import I8, Bool
from brrrtop.model.vocabulary import CopyKind, MarkClass

LEAST_NS = 100_000
"""A shorter op is what any loop does between two launches."""


@dataclass(frozen=True, slots=True)
class CpuWork:
    """Ops on the host in gaps of the device."""

    ops: int
    """Recorded in the window, those within others not counted."""
    shaped: bool
    """With the shapes of what they work on."""
    total_ns: int
    """Of those that run within gaps."""
    after_reads_ns: int
    """Of them in gaps that begin with the end of a large copy to the host."""
    names: tuple[tuple[str, int, int], ...]
    """Name, count, ns; dearest first, at most three."""


def cpu_work(joined: Joined) -> CpuWork | None:
    """Ops that began and ended in one idle gap; None where no ops are recorded.

    What launches a kernel or a copy ends the gap or outlasts it, so it is none of them.
    """
    marks = joined.window.marks
    ops = np.flatnonzero(marks.classes == MarkClass.OP)
    if not len(ops):
        return None
    if not len(joined.gap_rows):
        return CpuWork(len(ops), bool(joined.window.ops), 0, 0, ())
    starts, ends = marks.starts_ns[ops], marks.ends_ns[ops]
    at = np.maximum(np.searchsorted(joined.gap_starts_ns, starts, "right") - 1, 0)
    within = (starts >= joined.gap_starts_ns[at]) & (ends <= joined.gap_ends_ns[at])
    within &= (ends - starts >= LEAST_NS) & (ends <= joined.launched_ns[joined.gap_rows[at]])
    kept = _outermost(ops[within], starts[within], ends[within])
    lengths = marks.ends_ns[kept] - marks.starts_ns[kept]
    at = np.maximum(np.searchsorted(joined.gap_starts_ns, marks.starts_ns[kept], "right") - 1, 0)
    return CpuWork(
        ops=len(ops),
        shaped=bool(joined.window.ops),
        total_ns=int(lengths.sum()),
        after_reads_ns=int(lengths[_after_reads(joined)[at]].sum()),
        names=dearest_names(joined.window, kept, 3),
    )


def _outermost(rows: I8, starts: I8, ends: I8) -> I8:
    """Rows that no other one of them holds, nor overlaps from before."""
    order = np.lexsort((-ends, starts))
    reach = np.maximum.accumulate(ends[order])
    first: Bool = np.ones(len(order), np.bool_)
    first[1:] = starts[order][1:] >= reach[:-1]
    return np.asarray(rows[order][first])


def _after_reads(joined: Joined) -> Bool:
    """Which gaps a large copy to the host ends before."""
    activities = joined.window.activities
    large = (activities.copy_kinds == CopyKind.DTOH) & (activities.size_bytes > READ_BACK_BYTES)
    return np.isin(joined.gap_starts_ns, activities.ends_ns[large & ~joined.kernels])
