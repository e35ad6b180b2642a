"""Which kernel families ran while a counter was read, as shares of the traced time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brrrtop.estimator import intervals
from brrrtop.tables import I8, Window
from collectors.wire import Metric

F8 = npt.NDArray[np.float64]

LONGEST = 1.5
"""Of the usual time between two readings: where it is longer, readings are missing."""


def mean(window: Window, metric: Metric) -> float | None:
    """Mean of a metric's readings of the window's device; None when never read."""
    gauges = window.gauges
    mine = (gauges.metrics == metric) & (gauges.device_ids == window.device.device_id)
    values = gauges.values[mine]
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def inside(window: Window) -> F8:
    """Time of each activity within the window."""
    low, high = intervals.clip(
        window.activities.starts_ns,
        window.activities.ends_ns,
        window.span.t0_ns,
        window.span.t1_ns,
    )
    return (high - low).astype(np.float64)


def _observed(window: Window) -> list[tuple[int, int]]:
    if window.observed is None:
        return [(window.span.t0_ns, window.span.t1_ns)]
    return [(s.t0_ns, s.t1_ns) for s in window.observed]


def busy_share(window: Window) -> float:
    """Kernel time over traced time, at most 1."""
    traced = sum(high - low for low, high in _observed(window))
    kernels = window.activities.blocks > 0
    return min(1.0, float(inside(window)[kernels].sum()) / traced) if traced else 0.0


def shares(
    window: Window, families_of: npt.NDArray[np.int64], size: int, spans: list[tuple[int, int]]
) -> F8:
    """Part of the traced time of each span that each family runs, shape (spans, size)."""
    acts = window.activities
    cuts = np.array(spans, np.int64).reshape(-1, 2)
    traced = np.array(_observed(window), np.int64).reshape(-1, 2)
    cover = intervals.Cover(*intervals.merge(traced[:, 0], traced[:, 1]))
    lengths = np.maximum(cover.between(cuts[:, 0], cuts[:, 1]), 1)
    found = np.zeros((len(cuts), size))
    for family in range(size):
        rows = families_of == family
        starts, ends = acts.starts_ns[rows], np.sort(acts.ends_ns[rows])
        run = _run_before(starts, ends, cuts[:, 1]) - _run_before(starts, ends, cuts[:, 0])
        found[:, family] = run / lengths
    return found


def _run_before(starts: I8, ends: I8, times: I8) -> F8:
    """Summed time that intervals spend before each time; both columns sorted."""
    sums = []
    for column in (starts, ends):
        at = np.searchsorted(column, times)
        before = np.concatenate(([0], np.cumsum(column - (column[0] if len(column) else 0))))
        origin = int(column[0]) if len(column) else 0
        sums.append(at * (times - origin) - before[at])
    return np.asarray(sums[0] - sums[1], np.float64)


def equations(
    window: Window, families_of: npt.NDArray[np.int64], size: int, metric: Metric
) -> tuple[F8, F8]:
    """Shares and readings of the intervals between readings that were traced throughout.

    Of a longer one than usual nobody knows whether its reading covers it: some may be missing.
    """
    gauges = window.gauges
    mine = (gauges.metrics == metric) & (gauges.device_ids == window.device.device_id)
    times, values = gauges.times_ns[mine], gauges.values[mine]
    none = np.empty((0, size)), np.empty(0)
    if len(times) < 3:
        return none
    low, high = times[:-1], times[1:]
    traced = np.array(_observed(window), np.int64).reshape(-1, 2)
    cover = intervals.Cover(*intervals.merge(traced[:, 0], traced[:, 1]))
    seen = (cover.between(low, high) >= 0.99 * (high - low)) & np.isfinite(values[1:])
    seen &= high - low <= LONGEST * np.median(high - low)
    if not seen.any():
        return none
    spans = list(zip(low[seen].tolist(), high[seen].tolist(), strict=True))
    return shares(window, families_of, size, spans), values[1:][seen]
