"""Evidence L3: groups whose own tensor and DRAM activity counter samples could tell are judged by it.

Of contractions the busier of the two tells the side; so it does of kernels that nobody knows, where one
of the two is busy. What moves elements is memory whatever is counted: there samples tell how near the
roof it runs. The CUDA cores are not sampled, so what multiplies on them keeps what its name or its
shapes say.

A sample is the mean over its interval: the sum over kernel groups of the share of the interval
that the group ran, times the activity it has while it runs. Over the hundreds of intervals of a
burst that is a least squares problem with one unknown a group, in [0, 1] and near what its label
lets expect. Standard errors tell which groups the samples could tell apart, although most kernels are far
shorter than one.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.analysis.facts.table import COUNTERS, Facts, Group
from brrrtop.analysis.kernels import roofline
from brrrtop.kernel_names import families
from brrrtop.model import intervals
from brrrtop.model.estimate import CounterSamples, Side
from brrrtop.model.tables import F8, I8, Activities, Samples, Window, edges

MOST_ERROR = 0.08
"""Standard error of both activities together up to which a group counts as measured."""
USES_TENSOR = 0.10
"""Kernels without tensor instructions were counted with up to 6 %: some of their integer work is
booked there."""
BUSY_DRAM = 0.30
"""From here on an unknown kernel moves elements; with less, what it does nobody sampled."""
MOST_CERTAIN = 0.98
_LABEL_DOUBT = 0.15
"""What a label lets expect of a group is never taken for surer than this: groups are measured."""
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


def refined(facts: Facts, groups: Sequence[Group], group_of: I8) -> tuple[Group, ...]:
    """The groups, those that could be measured with evidence L3; unchanged without samples of use."""
    plain = tuple(groups)
    if not plain or facts.ceilings is None or facts.window.samples is None:
        return plain
    clock = facts.clock_ratio
    expected = {
        "tensor": Rates(*np.array([_tensor(group, clock) for group in plain]).T),
        "dram": Rates(*np.array([_dram(group) for group in plain]).T),
    }
    rates = measured(facts.window, group_of, expected)
    if rates is None or len(rates) < 2:
        return plain
    tensor, dram = rates["tensor"], rates["dram"]
    errors = np.hypot(tensor.errors, dram.errors)
    columns = (column.tolist() for column in (tensor.rates, dram.rates, errors))
    rows = zip(plain, *columns, strict=True)
    return tuple(_judge(group, one, other, error, clock) for group, one, other, error in rows)


def _tensor(group: Group, clock: float) -> tuple[float, float]:
    """Tensor activity that a label lets expect, and its standard error."""
    if group.side in (Side.COMM, Side.COPY) or group.blocks == 0:
        return 0.0, 0.01
    if group.side is Side.UNKNOWN:
        return 0.2, 0.3
    if not roofline.is_contraction(group.family) or group.facts.tensor_cores is False:
        return 0.02, 0.05
    if group.compute_share_of_roof is not None:
        return min(1.0, group.compute_share_of_roof / clock), _LABEL_DOUBT
    return 0.4, 0.3


def _dram(group: Group) -> tuple[float, float]:
    """DRAM activity that a label lets expect, and its standard error."""
    if group.side in (Side.COMM, Side.COPY):
        return 0.1, 0.2
    if group.memory_share_of_roof is not None:
        return min(1.0, group.memory_share_of_roof), _LABEL_DOUBT
    return (0.25, 0.25) if roofline.is_contraction(group.family) else (0.4, 0.3)


def _judge(group: Group, tensor: float, dram: float, error: float, clock: float) -> Group:
    """A group with what was measured of it; unchanged where the samples could not tell it apart."""
    spin = group.family.kind == families.SPIN
    if error > MOST_ERROR or spin or group.side in (Side.COMM, Side.COPY):
        return group
    if group.side is Side.UNDERFILLED:
        if max(tensor, dram) - error < roofline.BUSY:
            return group
        group = replace(group, side=Side.MEMORY, certainty=roofline.BY_FAMILY)
    unknown = group.side is Side.UNKNOWN
    multiplies = roofline.is_contraction(group.family)
    on_tensor = (unknown or multiplies) and tensor > USES_TENSOR
    on_tensor |= multiplies and group.facts.tensor_cores is True
    if on_tensor:
        side = Side.COMPUTE if tensor > dram else Side.MEMORY
        gap = abs(tensor - dram) / (2 * max(error, 0.01))
        certainty = 0.5 + (MOST_CERTAIN - 0.5) * min(1.0, gap)
        group = replace(group, side=side, certainty=certainty, level=COUNTERS)
    elif unknown and dram > BUSY_DRAM:
        group = replace(group, side=Side.MEMORY, certainty=roofline.BY_NAME, level=COUNTERS)
    elif unknown or dram <= 0.0:
        return group
    return _with_roofs(group, tensor * clock if on_tensor else None, dram)


def _with_roofs(group: Group, compute: float | None, memory: float) -> Group:
    """The group with the measured shares of the roofs where nothing else told them."""
    if group.side is Side.MEMORY and group.memory_share_of_roof is None:
        return replace(group, memory_share_of_roof=memory, level=COUNTERS)
    if group.side is Side.COMPUTE and group.compute_share_of_roof is None:
        return replace(group, compute_share_of_roof=compute, level=COUNTERS)
    return group


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
    starts, ends = (t + samples.offsets_ns for t in (samples.starts_ns, samples.ends_ns))
    traced = intervals.Cover(*intervals.merge(*edges(window.traced))).between(starts, ends)
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
