"""Small least squares with bounds and priors: which rates per group of kernels explain the counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F8 = npt.NDArray[np.float64]

_SWEEPS = 200
_SETTLED = 1e-6


@dataclass(frozen=True, slots=True)
class Solution:
    """Rates 0..1, shape (f,), and how much of the prior's doubt is left of each."""

    rates: F8
    left: F8
    """Standard error over the prior's, 0..1; 1: the readings said nothing of this one."""


def solve(shares: F8, readings: F8, prior: F8, doubt: F8, noise: float) -> Solution:
    """Rates that explain the readings and stay near their priors.

    Minimises |shares·rates - readings|²/noise² + |(rates - prior)/doubt|² over [0, 1]: what the rows
    cannot tell apart stays at its prior, and `left` says so.

    Args:
        shares: Part of interval w that group f runs, shape (w, f).
        readings: One activity per interval, shape (w,).
        prior, doubt: Expected rate and its standard error, shape (f,).
        noise: Standard error of one reading.
    """
    weight = 1.0 / np.maximum(doubt, 1e-6) ** 2
    square = shares.T @ shares / noise**2 + np.diag(weight)
    target = shares.T @ readings / noise**2 + weight * prior
    rates = _bounded(square, target, np.clip(prior, 0.0, 1.0))
    left = np.sqrt(np.clip(np.diag(np.linalg.inv(square)) * weight, 0.0, 1.0))
    return Solution(rates, left)


def _bounded(square: F8, target: F8, start: F8) -> F8:
    """argmin ½xᵀSx - tᵀx over [0, 1]ⁿ for a positive definite S, one coordinate at a time."""
    found = np.array(start, np.float64)
    for _ in range(_SWEEPS):
        moved = 0.0
        for k in range(len(found)):
            best = found[k] + (target[k] - square[k] @ found) / square[k, k]
            best = min(1.0, max(0.0, best))
            moved = max(moved, abs(best - found[k]))
            found[k] = best
        if moved < _SETTLED:
            break
    return found
