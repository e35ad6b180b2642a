"""Counter samples that are denser than kernels are long, given to the kernel each was taken in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brrrtop.tables import I8, Window
from collectors.wire import Metric

F8 = npt.NDArray[np.float64]

DENSE_NS = 2_000_000
"""Readings further apart are averages over many kernels (GPM: 250 ms)."""
LEAST_PERIODS = 3
"""A kernel must last this many sample periods: the first and last sample of it are its neighbours'."""
LEAST_SAMPLES = 16


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """Means over the samples within each group's kernels, shape (g,)."""

    counts: I8
    compute: F8
    """Larger of the pipes' shares of peak."""
    memory: F8

    def rates(self, group: int) -> tuple[float, float]:
        return float(self.compute[group]), float(self.memory[group])


def aligned(window: Window, group_of: I8, size: int) -> Sampled | None:
    """Activities per group from samples that lie whole within one kernel that ran alone.

    Sample times and kernel times are on one clock (`collectors.counters`). None: the readings are
    too few or too far apart.
    """
    dram = _series(window, Metric.DRAM_ACTIVE)
    pipes = [
        series
        for m in (Metric.TENSOR_ACTIVE, Metric.FP32_ACTIVE)
        if (series := _series(window, m)) is not None
    ]
    if dram is None or not pipes:
        return None
    times, period = dram[0], int(np.median(np.diff(dram[0])))
    rows = _kernel_of(window, times, period)
    within = rows >= 0
    groups = group_of[rows[within]]
    counts = np.bincount(groups, minlength=size).astype(np.int64)
    memory = np.bincount(groups, dram[1][within], size) / np.maximum(counts, 1)
    compute = np.zeros(size)
    for pipe_times, values in pipes:
        at = np.searchsorted(pipe_times, times)
        same = (at < len(pipe_times)) & (pipe_times[np.minimum(at, len(pipe_times) - 1)] == times)
        read = np.where(same, values[np.minimum(at, len(values) - 1)], 0.0)
        mean = np.bincount(groups, read[within], size) / np.maximum(counts, 1)
        compute = np.maximum(compute, mean)
    return Sampled(counts, compute, memory)


def _series(window: Window, metric: Metric) -> tuple[I8, F8] | None:
    """Dense readings of one metric, by time."""
    gauges = window.gauges
    mine = (gauges.metrics == metric) & (gauges.device_ids == window.device.device_id)
    times, values = gauges.times_ns[mine], gauges.values[mine]
    if len(times) < LEAST_SAMPLES or np.median(np.diff(times)) > DENSE_NS:
        return None
    return times, values


def _kernel_of(window: Window, times: I8, period: int) -> I8:
    """Row of the kernel each sample lies within; -1 where it is in none, or more than one ran."""
    acts = window.activities
    if not len(acts):
        return np.full(len(times), -1, np.int64)
    reach = np.maximum.accumulate(acts.ends_ns)
    at = np.searchsorted(acts.starts_ns, times - period, "right") - 1
    row = np.maximum(at, 0)
    inside = (at >= 0) & (acts.starts_ns[row] <= times - period) & (acts.ends_ns[row] >= times)
    inside &= (acts.ends_ns - acts.starts_ns)[row] >= LEAST_PERIODS * period
    inside &= acts.blocks[row] > 0
    after = np.minimum(row + 1, len(acts) - 1)
    inside &= (row == len(acts) - 1) | (acts.starts_ns[after] >= times)
    before = np.where(row > 0, reach[np.maximum(row - 1, 0)], 0)
    inside &= before <= times - period
    return np.where(inside, row, -1)
