"""Stretches in which values are computed only to be read: norms, extremes and histograms of tensors.

A logger goes through the parameters and reads a few numbers of each. On the device that is one small
reduction or two, a copy of a few bytes, and again, with no product nor other copy between them.
Training itself reads values too (a norm to clip by): what tells logging is a histogram, which no loss
needs, or that few of the steps do it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from brrrtop.analysis.kernels.traits import Role, used
from brrrtop.analysis.signals.checkpoints import READ_BACK_BYTES
from brrrtop.analysis.signals.joined import Joined
from brrrtop.model.estimate import Steps
from brrrtop.model.tables import I8, Bool
from brrrtop.model.vocabulary import CopyKind

LEAST_READS = 32
"""Values in one go: fewer are the metrics of a loss."""
NEAR_KERNELS = 3
"""Kernels for a value that is only read, on average: a copy, a reduction, its last part. A value that
decides something takes a comparison and more: five in a clipping of each parameter's gradient."""
FEW_STEPS = 0.5
"""Of the steps read many more values than the others: logging every N steps."""
MANY_MORE = 3.0
_HISTOGRAM = re.compile(r"kernelHistogram|[hH]istc|DeviceHistogram")
_WORK = (Role.GEMM, Role.CONV, Role.ATTENTION, Role.OPTIMIZER, Role.SKINNY)


@dataclass(frozen=True, slots=True)
class HostReads:
    """Stretches of values read, and nothing else on the device."""

    reads: int
    histograms: int
    """Read back within them."""
    some_steps: bool
    """Few of the steps read most of the values."""
    span_ns: int
    """From the first read to the last of each stretch."""
    idle_ns: int
    """Of that, with nothing on the device."""


def value_reads(joined: Joined, steps: Steps) -> HostReads | None:
    """Stretches of the window; None where nothing reads so many values in one go."""
    activities = joined.window.activities
    small = (activities.copy_kinds == CopyKind.DTOH) & ~joined.kernels
    small &= activities.size_bytes <= READ_BACK_BYTES
    reads = np.flatnonzero(small)
    if len(reads) < LEAST_READS:
        return None
    work = np.cumsum(joined.kernels & joined.is_role(*_WORK))
    kernels = np.cumsum(joined.kernels)
    moved = np.cumsum((activities.copy_kinds != 0) & ~small & ~joined.kernels)
    apart = np.flatnonzero((np.diff(work[reads]) > 0) | (np.diff(moved[reads]) > 0)) + 1
    first = np.concatenate(([0], apart))
    last = np.concatenate((apart, [len(reads)])) - 1
    low, high = reads[first], reads[last]
    count = last - first + 1
    kept = (count >= LEAST_READS) & (kernels[high] - kernels[low] <= NEAR_KERNELS * count)
    if not kept.any():
        return None
    low, high, count = low[kept], high[kept], count[kept]
    starts, ends = activities.starts_ns[low], activities.ends_ns[high]
    histograms = np.cumsum(_histograms(joined))
    idle = np.zeros(1, np.int64)
    idle = np.append(idle, np.cumsum(joined.gap_ends_ns - joined.gap_starts_ns))
    inside = [np.searchsorted(joined.gap_rows, edge, "right") for edge in (low, high)]
    return HostReads(
        reads=int(count.sum()),
        histograms=int((histograms[high] - histograms[low]).sum()),
        some_steps=_some_steps(activities.starts_ns[reads], steps),
        span_ns=int((ends - starts).sum()),
        idle_ns=int((idle[inside[1]] - idle[inside[0]]).sum()),
    )


def _histograms(joined: Joined) -> Bool:
    """Histograms that are read back at once: the next activity copies one to the host."""
    window = joined.window
    found = np.zeros(len(window.names), np.bool_)
    for name_id in used(window.activities.name_ids, joined.kernels):
        found[name_id] = bool(_HISTOGRAM.search(window.names[name_id]))
    rows = found[window.activities.name_ids] & joined.kernels
    rows[:-1] &= window.activities.copy_kinds[1:] == CopyKind.DTOH
    return np.asarray(rows)


def _some_steps(times: I8, steps: Steps) -> bool:
    """Whether few of the steps, three or more of them, read most of the values."""
    if len(steps.spans) < 3:
        return False
    edges = np.array([(span.t0_ns, span.t1_ns) for span in steps.spans], np.int64)
    low, high = np.searchsorted(times, edges).T
    count = high - low
    usual = float(np.median(count))
    many = count >= MANY_MORE * max(usual, 1.0)
    many &= count - usual >= LEAST_READS
    return bool(many.any() and many.sum() <= FEW_STEPS * len(count))
