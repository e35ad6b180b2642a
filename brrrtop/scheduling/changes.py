"""Notices that the trainer began to behave differently, from cheap signals. No clock, no I/O."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from brrrtop.model.vocabulary import Metric

WATCHED = frozenset({Metric.SM_ACTIVE, Metric.TENSOR_ACTIVE, Metric.DRAM_ACTIVE})
"""Gauges in which a jump starts a burst."""
_HISTORY = 24
_NEW = 2
"""Readings that must agree before a gauge is believed to have moved."""
_NEW_STEPS = 6
_LEAST_SHARE = 0.12
_LEAST_STEP_SHARE = 0.25
_SPREADS = 5.0
_MAD_TO_SIGMA = 1.4826
"""For a normal distribution; any statistics text, "median absolute deviation"."""


class GaugeJump:
    """One gauge, a share of 0..1."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_HISTORY)

    def moved(self, value: float) -> bool:
        """Whether the newest readings left the range of the ones before."""
        self._seen.append(value)
        values = np.array(self._seen)
        if len(values) < _NEW + 6:
            return False
        old, new = values[:-_NEW], values[-_NEW:]
        middle = float(np.median(old))
        limit = max(_LEAST_SHARE, _SPREADS * _spread(old, middle))
        if not (np.all(new - middle > limit) or np.all(middle - new > limit)):
            return False
        self._seen.clear()
        self._seen.extend(float(one) for one in new)
        return True


def step_moved(durations_ns: npt.NDArray[np.int64]) -> bool:
    """Whether the newest untraced steps differ from the ones before by more than their noise."""
    if len(durations_ns) < 4 * _NEW_STEPS:
        return False
    old, new = np.split(durations_ns.astype(float), [-_NEW_STEPS])
    middle = float(np.median(old))
    limit = max(_LEAST_STEP_SHARE * middle, _SPREADS * _spread(old, middle))
    return abs(float(np.median(new)) - middle) > limit


def _spread(values: npt.NDArray[np.float64], middle: float) -> float:
    return _MAD_TO_SIGMA * float(np.median(np.abs(values - middle)))
