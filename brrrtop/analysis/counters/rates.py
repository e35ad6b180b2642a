"""Rates of every kernel from counter samples, although most kernels are far shorter than one.

A sample is the mean over its interval: the sum over kernel groups of the share of the interval
that the group ran, times the activity it has while it runs. Over the hundreds of intervals of a
burst that is a least squares problem with one unknown a group, in [0, 1] and near what its label
lets expect. Standard errors tell which groups the samples could tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from brrrtop.model import intervals
from brrrtop.model.estimate import CounterSamples
from brrrtop.model.tables import F8, I8, Activities, Samples, Window, edges

WORST_OFFSET = 0.3
"""Of an interval: samples placed worse than this are not used."""
LEAST_SAMPLES = 60
MOST_SAMPLES = 6_000
"""The newest; more cost time and change nothing."""
LEAST_NOISE = 0.01
"""Readings are never taken for better than this."""


class Rates(Struct, frozen=True, eq=False):
    """One activity by group while it runs, 0..1, expected or measured; shape (g,) each."""

    rates: F8
    errors: F8
    """Standard errors; of what was expected where the samples said nothing."""


def measured(
    window: Window, group_of: I8, expected: Mapping[str, Rates]
) -> dict[str, Rates] | None:
    """Rates by column of the samples, those that were read; None: too few samples to use.

    Args:
        group_of: Group of each activity of the window.
        expected: By column, over all groups.
    """
    samples = _usable(window)
    if samples is None:
        return None
    size = len(next(iter(expected.values())).rates)
    shares = overlap_shares(window.activities, group_of, samples, size)
    columns = {name: getattr(samples, name) for name in expected}
    return {
        name: _solve(shares, read, expected[name])
        for name, read in columns.items()
        if np.isfinite(read).all()
    } or None


def summary(window: Window) -> CounterSamples | None:
    """What was sampled in the window, and how much of it can be used."""
    samples = window.samples
    if samples is None or not len(samples):
        return None
    lengths = samples.ends_ns - samples.starts_ns
    placed = samples.errors_ns <= WORST_OFFSET * lengths
    error = float(np.median(samples.errors_ns[placed])) if placed.any() else None
    return CounterSamples(len(samples), int(np.median(lengths)), int(placed.sum()), error)


def _solve(shares: F8, read: F8, expected: Rates) -> Rates:
    solution = solve(shares, read, expected, 5 * LEAST_NOISE)
    # What is left unexplained is the noise; the second round knows it.
    left = read - shares @ solution.rates
    return solve(shares, read, expected, max(LEAST_NOISE, float(np.sqrt(np.mean(left**2)))))


def solve(shares: F8, readings: F8, expected: Rates, noise: float) -> Rates:
    """Rates that explain the readings and stay near what was expected.

    Minimises |shares·rates - readings|²/noise² + |(rates - expected)/errors|²: what the rows cannot tell
    apart stays as expected, and its error says so.

    Args:
        shares: Part of interval w that group g runs, shape (w, g).
        readings: One activity per interval, shape (w,).
        noise: Standard error of one reading.
    """
    weight = 1.0 / np.maximum(expected.errors, 1e-6) ** 2
    square = shares.T @ shares / noise**2 + np.diag(weight)
    target = shares.T @ readings / noise**2 + weight * expected.rates
    rates = np.clip(np.linalg.solve(square, target), 0.0, 1.0)
    left = np.sqrt(np.clip(np.diag(np.linalg.inv(square)) * weight, 0.0, 1.0))
    return Rates(rates, left * expected.errors)


def _usable(window: Window) -> Samples | None:
    """Samples whose place is known and that lie whole within a traced span."""
    samples = window.samples
    if samples is None or not len(samples):
        return None
    lengths = samples.ends_ns - samples.starts_ns
    known = samples.errors_ns <= WORST_OFFSET * lengths  # NaN is not
    spans = window.observed if window.observed is not None else (window.span,)
    starts, ends = (t + samples.offsets_ns for t in (samples.starts_ns, samples.ends_ns))
    traced = intervals.Cover(*intervals.merge(*edges(spans))).between(starts, ends)
    rows = np.flatnonzero(known & (traced == ends - starts))[-MOST_SAMPLES:]
    return samples.take(rows) if len(rows) >= LEAST_SAMPLES else None


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
    return np.asarray(time.reshape(len(low), size) / (high - low)[:, None], np.float64)
