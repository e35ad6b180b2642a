"""Counter samples on the trainer's clock: the offset of each burst, kept over bursts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from brrrtop.model.tables import F8, I8, Activities, Samples, Span
from brrrtop.timeline.clocks import NEAR_NS, Shift, find_shift

PIECE_NS = 1_000_000_000
"""What is traced without pauses is placed in pieces of this length."""
REACH_NS = 10_000_000_000
"""An offset of one burst holds for others this near that show none of their own."""
LEAST_SCATTER_NS = 10_000.0
"""Clocks are not taken to run straighter than this."""
MOST_DRIFT = 200e-6
"""Between a GPU's clock and a host's; steeper is a wrong match."""
_MOST_KEPT = 512

_Key = tuple[int, ...]


class SampleClock:
    """Finds what to add to the GPU's clock, once for each traced span."""

    def __init__(self) -> None:
        self._shifts: dict[_Key, Shift | None] = {}

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
        pieces = [piece for span in traced for piece in _pieces(span, guess)]
        rows = [_rows(guess, piece) for piece in pieces]
        shifts = [
            self._shift(samples.take(mine), acts, piece)
            for mine, piece in zip(rows, pieces, strict=True)
        ]
        line = _Line([shift for shift in shifts if shift is not None])
        for mine, shift in zip(rows, shifts, strict=True):
            at = (samples.starts_ns[mine] + samples.ends_ns[mine]) // 2
            if shift is not None and line.agrees(shift):
                drifted = np.rint(line.drift * (at - shift.at_ns)).astype(np.int64)
                offsets[mine] = shift.offset_ns + drifted
                errors[mine] = shift.error_ns
            elif len(at) and line.reaches(int(at[0])):
                offsets[mine] = line.at(at)
                errors[mine] = line.scatter_ns
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


def _pieces(span: Span, times: I8) -> list[Span]:
    """The span in parts whose cuts do not move when it grows: those near one of the times."""
    cuts = range(span.t0_ns + PIECE_NS, span.t1_ns - PIECE_NS // 4, PIECE_NS)
    edges = np.concatenate([times - NEAR_NS, times + NEAR_NS])
    edges = edges[(edges >= span.t0_ns - 2 * NEAR_NS) & (edges <= span.t1_ns + 2 * NEAR_NS)]
    near = np.unique(np.clip((edges - span.t0_ns) // PIECE_NS, 0, len(cuts)))
    starts = [span.t0_ns + int(k) * PIECE_NS for k in near]
    ends = [cuts[int(k)] if k < len(cuts) else span.t1_ns for k in near]
    return [Span(*piece) for piece in zip(starts, ends, strict=True)]


def _rows(guess: I8, piece: Span) -> slice:
    """Samples that may lie in the piece."""
    low = int(np.searchsorted(guess, piece.t0_ns - NEAR_NS))
    return slice(low, int(np.searchsorted(guess, piece.t1_ns + NEAR_NS)))


class _Line:
    """A straight line through the offsets of several bursts; wrong matches do not bend it."""

    def __init__(self, shifts: Sequence[Shift]) -> None:
        self._at = np.array([shift.at_ns for shift in shifts], np.int64)
        self._origin = int(self._at[0]) if len(shifts) else 0
        base = self._base = shifts[0].offset_ns if shifts else 0
        x = (self._at - self._origin).astype(np.float64)
        y = np.array([shift.offset_ns - base for shift in shifts])
        self.drift = _slope(x, y)
        rest = y - self.drift * x
        self._level = float(np.median(rest)) if len(shifts) else 0.0
        spread = np.median(np.abs(rest - self._level)) if len(shifts) else 0.0
        self.scatter_ns = max(LEAST_SCATTER_NS, 1.5 * float(spread))

    def at(self, times: I8) -> I8:
        """The offset at times of the GPU's clock."""
        drifted = np.rint(self._level + self.drift * (times - self._origin))
        rows: I8 = self._base + drifted.astype(np.int64)
        return rows

    def agrees(self, shift: Shift) -> bool:
        """Whether an offset is not a wrong match; one or two cannot outvote each other."""
        away = abs(int(self.at(np.array([shift.at_ns]))[0]) - shift.offset_ns)
        return len(self._at) < 3 or away < 5 * max(self.scatter_ns, shift.error_ns)

    def reaches(self, at_ns: int) -> bool:
        """Whether some burst that showed an offset is near."""
        return len(self._at) > 0 and int(np.abs(self._at - at_ns).min()) < REACH_NS


def _slope(x: F8, y: F8) -> float:
    """Median of the slopes between any two points (Theil and Sen); 0 with fewer than three."""
    if len(x) < 3:
        return 0.0
    i, j = np.triu_indices(len(x), 1)
    apart = np.abs(x[j] - x[i]) > 1e8
    slopes = (y[j] - y[i])[apart] / (x[j] - x[i])[apart]
    slopes = slopes[np.abs(slopes) < MOST_DRIFT]
    return float(np.median(slopes)) if len(slopes) else 0.0
