"""Puts counter samples and kernels on one clock, by what both say of the same moments.

A sample can only be read after its interval, so the clocks are known to a millisecond; kernels
last 50 us. But what kernels ran and what the counters showed are one signal, shifted: at the right
offset the shares of the kernels in each interval explain its readings best. With gaps between
kernels their edges tell; without any, the passages from one kernel to another do.
"""

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from brrrtop.model import intervals
from brrrtop.model.tables import F8, I8, Activities, Samples, Span

NEAR_NS, FAR_NS = 2_000_000, 15_000_000
"""Searched around what reading showed: first near, then as far as reading may have been late. On
an H200 (CUPTI 13.4) the samples were 4 us from the kernels."""
COARSE, FINE = 4, 8
"""Offsets tried for each interval: everywhere, then around the best."""
COARSE_GROUPS, FINE_GROUPS = 12, 32
"""Kernels by name and grid, longest first; the rest are one group. With too few, kernels that are
lumped together pull the offset to where their neighbours hide it (simulated: by half an interval)."""
AROUND = 1.5
"""Intervals searched on either side of the coarse best."""
LEAST_SAMPLES = 40
MOST_SAMPLES = 600
LEAST_FIT = 0.3
"""Share of the readings' variance explained, below which the match is chance."""
LEAST_LEAD = 12.0
"""Between the best offset and the best one further away, in units of -2 log likelihood."""
APART = 2.0
"""Intervals between two offsets that are not the same peak."""
WORST_ERROR = 0.25
"""Of an interval: an offset known worse than this cannot place short kernels."""
INFLATION = 2.0
"""Neighbouring readings are not independent, and kernels of a group not equal."""
LEAST_INTERVAL_NS = 10_000
"""Shorter ones no counter is read in, and offsets would be tried without end."""
UNEVEN = 10
"""So many times the usual one no interval lasts."""
MOST_INTERVALS = 1 << 14
"""From the first sample to the last: a burst has a few thousand."""
PIECE_NS = 1_000_000_000
"""So much of a traced span tells the offset of all of it."""
_MOST_KEPT = 512
_RIDGE = 1e-3
_TINY = 1e-4


class Shift(Struct, frozen=True):
    """What to add to the GPU's clock within one traced span."""

    offset_ns: int
    error_ns: float


def find_shift(acts: Activities, samples: Samples, span: Span) -> Shift | None:
    """The offset of the samples of one traced span; None where the data does not show it.

    Args:
        acts: Of the device, sorted by start; all that ran in the span.
        samples: Of the device, sorted by start.
        span: All that ran within it is in `acts`.
    """
    columns = _columns(samples)
    if len(samples) < LEAST_SAMPLES or not len(acts) or not columns.size:
        return None
    lengths = samples.ends_ns - samples.starts_ns
    interval = int(np.median(lengths))
    lasted = int(samples.ends_ns.max() - samples.starts_ns.min())
    if interval < LEAST_INTERVAL_NS or int(lengths.max()) > UNEVEN * interval:
        return None
    if lasted > MOST_INTERVALS * interval:
        return None
    guess = int(samples.offsets_ns.min())

    def search(first: int, step: int, count: int, groups: int) -> tuple[F8, F8]:
        return _scores(acts, samples, span, columns, (first, step, count), groups)

    step = max(1, interval // COARSE)
    for reach in (NEAR_NS, FAR_NS):
        scores, _ = search(guess - reach, step, 2 * reach // step + 1, COARSE_GROUPS)
        if _leads(scores):
            break
    else:
        return None
    first = guess - reach + int(np.argmin(scores)) * step - round(AROUND * interval)
    step = max(1, interval // FINE)
    scores, fits = search(first, step, 2 * round(AROUND * FINE) + 1, FINE_GROUPS)
    best = int(np.argmin(scores))
    if not 0 < best < len(scores) - 1:
        return None
    at, error = _vertex(scores[best - 1 : best + 2], step)
    if fits[best] < LEAST_FIT or not error * INFLATION < WORST_ERROR * interval:
        return None
    return Shift(first + round((best + at) * step), error * INFLATION)


def _leads(scores: F8) -> bool:
    """Whether one offset is far better than all that are not its neighbours."""
    best = int(np.argmin(scores))
    far = np.abs(np.arange(len(scores)) - best) > round(APART * COARSE)
    rival = float(np.min(scores[far], initial=math.inf))
    known = 0 < best < len(scores) - 1 and math.isfinite(scores[best])
    return known and rival - float(scores[best]) >= LEAST_LEAD


def _scores(
    acts: Activities,
    samples: Samples,
    span: Span,
    columns: F8,
    grid: tuple[int, int, int],
    groups: int,
) -> tuple[F8, F8]:
    """-2 log likelihood of the readings given the kernels over that of no kernels, at each offset, and the
    share of the variance explained, of the column that is explained best; inf and 0: too few readings.

    Least squares of the readings on the shares of kernel groups. Each offset has other readings within the
    span: what they vary by themselves is taken out.

    Args:
        grid: The first offset, the step and their number.
    """
    first, step, count = grid
    columns = columns[:MOST_SAMPLES]
    starts = samples.starts_ns[:MOST_SAMPLES] + first
    ends = samples.ends_ns[:MOST_SAMPLES] + first
    origin = int(starts[0])
    times = origin + np.arange((int(ends.max()) - origin) // step + count + 2) * step
    run = _run_before(acts, _merged_groups(acts, groups), times)
    lengths = (ends - starts).astype(np.float64)[:, None]

    begun, begun_part = (starts - origin) // step, ((starts - origin) % step / step)[:, None]
    ended, ended_part = (ends - origin) // step, ((ends - origin) % step / step)[:, None]

    def run_at(place: I8, part: F8) -> F8:
        return np.asarray(run[place] * (1 - part) + run[place + 1] * part)

    scores, fits = np.full(count, math.inf), np.zeros(count)
    for k in range(count):
        low = int(np.searchsorted(starts + k * step, span.t0_ns))
        high = int(np.searchsorted(ends + k * step, span.t1_ns, "right"))
        if high - low < LEAST_SAMPLES:
            continue
        rows = slice(low, high)
        shares = run_at(ended[rows] + k, ended_part[rows])
        shares -= run_at(begun[rows] + k, begun_part[rows])
        shares /= lengths[rows]
        read = columns[rows]
        square = shares.T @ shares + _RIDGE * (high - low) * np.eye(shares.shape[1])
        left = ((read - shares @ np.linalg.solve(square, shares.T @ read)) ** 2).sum(axis=0)
        whole = ((read - read.mean(axis=0)) ** 2).sum(axis=0)
        share = np.minimum(np.maximum(left, _TINY) / np.maximum(whole, _TINY), 1.0)
        scores[k] = len(columns) * np.log(share).sum()
        fits[k] = (1 - left / np.maximum(whole, 1e-12)).max()
    return scores, fits


def _columns(samples: Samples) -> F8:
    """Readings that move, shape (n, c)."""
    columns = [
        column
        for column in (samples.sm, samples.tensor, samples.dram)
        if len(column) and np.isfinite(column).all() and column.std() > 0.01
    ]
    return np.column_stack(columns) if columns else np.empty((len(samples), 0))


def _merged_groups(acts: Activities, most: int) -> I8:
    """Number of each activity's kind by name and grid; all but the `most` longest share the last."""
    key = acts.name_ids * np.int64(1_000_003) + acts.blocks
    _, inverse = np.unique(key, return_inverse=True)
    time = np.bincount(inverse, acts.ends_ns - acts.starts_ns)
    longest = np.argsort(-time, kind="stable")[:most]
    place = np.full(len(time), len(longest), np.int64)
    place[longest] = np.arange(len(longest))
    return place[inverse]


def _run_before(acts: Activities, groups: I8, times: I8) -> F8:
    """Time each group has run before each of evenly spaced times, shape (t, g)."""
    busy_before = np.zeros((len(times), int(groups.max()) + 1))
    for group in range(busy_before.shape[1]):
        group_rows = groups == group
        cover = intervals.Cover(
            *intervals.merge(acts.starts_ns[group_rows], acts.ends_ns[group_rows])
        )
        busy_before[:, group] = cover.up_to(times)
    return busy_before


def _vertex(scores: F8, step: int) -> tuple[float, float]:
    """Lowest point of the parabola through three scores, in steps from the middle one, and the
    standard error in ns that its curvature means."""
    before, middle, after = (float(s) for s in scores)
    bend = before - 2 * middle + after
    if not math.isfinite(bend) or bend <= 0:
        return 0.0, math.inf
    at = min(0.5, max(-0.5, (before - after) / (2 * bend)))
    return at, step * math.sqrt(2.0 / bend)


class SampleClock:
    """Finds what to add to the GPU's clock, once for each traced span."""

    def __init__(self) -> None:
        self._shifts: dict[tuple[int, ...], Shift | None] = {}

    def placed(self, samples: Samples, acts: Activities, traced: Sequence[Span]) -> Samples:
        """The samples with the best offsets known, and their errors.

        Args:
            samples: Of one device, sorted by start.
            acts: Of that device, sorted by start; whole within the traced spans.
        """
        if not len(samples):
            return samples
        guess = samples.starts_ns + samples.offsets_ns
        offsets, errors = samples.offsets_ns.copy(), samples.errors_ns.copy()
        firsts = [Span(span.t0_ns, min(span.t1_ns, span.t0_ns + PIECE_NS)) for span in traced]
        shifts = [self._shift(samples.take(_rows(guess, one)), acts, one) for one in firsts]
        known = [shift for shift in shifts if shift is not None]
        if (
            known
        ):  # the clocks run alike: most bursts outvote a wrong match, and speak for the others
            found = np.array([shift.offset_ns for shift in known])
            offset = int(np.median(found))
            error = float(np.median([shift.error_ns for shift in known]))
            for span in traced:
                rows = _rows(guess, span)
                offsets[rows] = offset
                errors[rows] = max(error, 1.5 * float(np.median(np.abs(found - offset))))
        return replace(samples, offsets_ns=offsets, errors_ns=errors)

    def _shift(self, samples: Samples, acts: Activities, piece: Span) -> Shift | None:
        if not len(samples):
            return None
        near = (acts.ends_ns > piece.t0_ns) & (acts.starts_ns < piece.t1_ns)
        key = (
            int(samples.device_ids[0]), piece.t0_ns, piece.t1_ns,
            int(samples.starts_ns[0]), len(samples), int(near.sum()),
        )  # fmt: skip
        if key not in self._shifts:
            if len(self._shifts) >= _MOST_KEPT:
                self._shifts.pop(next(iter(self._shifts)))
            self._shifts[key] = find_shift(acts.take(near), samples, piece)
        return self._shifts[key]


def _rows(guess: I8, piece: Span) -> slice:
    """Samples that may lie in the piece."""
    low = int(np.searchsorted(guess, piece.t0_ns - NEAR_NS))
    return slice(low, int(np.searchsorted(guess, piece.t1_ns + NEAR_NS)))
