"""Compares windows with and without something, in turns, and says how sure the difference is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

RESAMPLES = 4000
SEED = 1

F8 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """Relative cost: 0.01 is 1 % longer steps."""

    mean: float
    low: float
    high: float
    """95 % of the bootstrap means lie between `low` and `high`."""
    median: float
    pairs: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.mean:+.2%} [{self.low:+.2%}, {self.high:+.2%}]"


def bootstrap(differences: F8) -> Cost | None:
    """The mean of relative differences and its interval; None with fewer than three."""
    if len(differences) < 3:
        return None
    random = np.random.default_rng(SEED)
    chosen = random.integers(len(differences), size=(RESAMPLES, len(differences)))
    means = differences[chosen].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    median = float(np.median(differences))
    return Cost(float(differences.mean()), float(low), float(high), median, len(differences))


def between(off: list[float], on: list[float]) -> Cost | None:
    """Each value of `on` against the two values of `off` around it: linear drift cancels.

    Args:
        off: One more than `on`, taken in turns with it: off, on, off, on, …, off.
    """
    count = min(len(on), len(off) - 1)
    before, after = np.array(off[:count]), np.array(off[1 : count + 1])
    return bootstrap(np.array(on[:count]) / ((before + after) / 2) - 1)


def apart(first: list[float], later: list[float]) -> Cost | None:
    """Later values against the mean of the first; drift between them does not cancel."""
    if len(first) < 3 or len(later) < 3:
        return None
    random = np.random.default_rng(SEED)
    one, two = np.array(first), np.array(later)
    ones = one[random.integers(len(one), size=(RESAMPLES, len(one)))].mean(axis=1)
    twos = two[random.integers(len(two), size=(RESAMPLES, len(two)))].mean(axis=1)
    low, high = np.percentile(twos / ones - 1, [2.5, 97.5])
    median = float(np.median(two) / np.median(one) - 1)
    return Cost(float(two.mean() / one.mean() - 1), float(low), float(high), median, len(later))
