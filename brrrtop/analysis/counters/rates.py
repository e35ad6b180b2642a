"""Rates of every kernel from counter samples, although most kernels are far shorter than one.

A sample is the mean over its interval: the sum over kernel groups of the share of the interval
that the group ran, times the activity it has while it runs. Over the hundreds of intervals of a
burst that is a least squares problem with one unknown a group, in [0, 1] and near what its label
lets expect (`least_squares`). Standard errors tell which groups the samples could tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from brrrtop.analysis.counters import least_squares
from brrrtop.model.estimate import CounterSamples
from brrrtop.model.tables import I8, Activities, Samples, Span, Window

F8 = npt.NDArray[np.float64]

WORST_OFFSET = 0.3
"""Of an interval: samples placed worse than this are not used."""
LEAST_SAMPLES = 60
MOST_SAMPLES = 6_000
"""The newest; more cost time and change nothing."""
LEAST_NOISE = 0.01
"""Readings are never taken for better than this."""
COLUMNS = ("tensor", "dram")


@dataclass(frozen=True, slots=True, eq=False)
class Rate:
    """One activity by group while it runs, shape (g,) each."""

    rates: F8
    errors: F8
    """Standard errors, that of what was expected where the samples said nothing."""
    left: F8
    """Standard error over the doubt there was before, 0..1."""
    fit: float
    """Share of the variance of the readings that the rates explain."""


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What the labels let expect of one activity, shape (g,) each."""

    rates: F8
    doubts: F8


def measured(
    window: Window, group_of: I8, expected: Mapping[str, Expected]
) -> dict[str, Rate] | None:
    """Rates by column of `COLUMNS`, those that were sampled; None: too few samples to use.

    Args:
        group_of: Group of each activity of the window.
        expected: By column, over all groups.
    """
    samples = _usable(window)
    if samples is None:
        return None
    shares = overlap_shares(window.activities, group_of, samples, len(expected["tensor"].rates))
    found = {}
    for column in COLUMNS:
        read = getattr(samples, column)
        if column in expected and np.isfinite(read).all():
            found[column] = _solved(shares, read, expected[column])
    return found or None


def summary(window: Window) -> CounterSamples | None:
    """What was sampled in the window, and how much of it can be used."""
    samples = window.samples
    if samples is None or not len(samples):
        return None
    lengths = samples.ends_ns - samples.starts_ns
    placed = samples.errors_ns <= WORST_OFFSET * lengths
    error = float(np.median(samples.errors_ns[placed])) if placed.any() else None
    return CounterSamples(len(samples), int(np.median(lengths)), int(placed.sum()), error)


def _solved(shares: F8, read: F8, expected: Expected) -> Rate:
    noise = 5 * LEAST_NOISE
    # What is left unexplained is the noise; the second round knows it.
    for _ in range(2):
        solution = least_squares.solve(shares, read, expected.rates, expected.doubts, noise)
        left = read - shares @ solution.rates
        noise = max(LEAST_NOISE, float(np.sqrt(np.mean(left**2))))
    variance = float(read.var())
    fit = 1.0 - float(np.mean(left**2)) / variance if variance > 0 else 0.0
    return Rate(solution.rates, solution.left * expected.doubts, solution.left, fit)


def _usable(window: Window) -> Samples | None:
    """Samples whose place is known and that lie whole within a traced span."""
    samples = window.samples
    if samples is None or not len(samples):
        return None
    lengths = samples.ends_ns - samples.starts_ns
    known = samples.errors_ns <= WORST_OFFSET * lengths  # NaN is not
    spans = window.observed if window.observed is not None else (window.span,)
    rows = np.flatnonzero(known & _within(samples, spans))[-MOST_SAMPLES:]
    return samples.take(rows) if len(rows) >= LEAST_SAMPLES else None


def _within(samples: Samples, spans: tuple[Span, ...]) -> npt.NDArray[np.bool_]:
    starts = samples.starts_ns + samples.offsets_ns
    ends = samples.ends_ns + samples.offsets_ns
    found = np.zeros(len(samples), np.bool_)
    for span in spans:
        found |= (starts >= span.t0_ns) & (ends <= span.t1_ns)
    return found


def overlap_shares(acts: Activities, group_of: I8, samples: Samples, size: int) -> F8:
    """Part of each sample's interval that each group runs, shape (n, g)."""
    low = samples.starts_ns + samples.offsets_ns
    high = samples.ends_ns + samples.offsets_ns
    first = np.searchsorted(high, acts.starts_ns, "right")
    after = np.searchsorted(low, acts.ends_ns, "left")
    counts = np.maximum(after - first, 0)
    rows = np.repeat(np.arange(len(acts)), counts)
    behind = np.repeat(np.cumsum(counts) - counts, counts)
    at = np.repeat(first, counts) + np.arange(len(rows)) - behind
    shared = np.minimum(acts.ends_ns[rows], high[at]) - np.maximum(acts.starts_ns[rows], low[at])
    cells = at * size + group_of[rows]
    time = np.bincount(cells, np.maximum(shared, 0), len(low) * size)
    found: F8 = time.reshape(len(low), size) / (high - low)[:, None]
    return found
