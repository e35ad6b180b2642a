"""Small least squares with bounds and priors: which rates per kernel family explain the counters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

F8 = npt.NDArray[np.float64]

LEAST_ROWS = 30
MOST_CONDITION = 50.0
"""A system worse than this says nothing of single families (regime theory study, 1.6)."""
_SWEEPS = 200
_SETTLED = 1e-6


@dataclass(frozen=True, slots=True)
class Solution:
    """Rates 0..1, shape (f,), and how much of the prior's doubt is left of each."""

    rates: F8
    left: F8
    """Standard error over the prior's, 0..1; 1: the readings said nothing of this family."""
    free: bool
    """All rows were used; else the system was too short or too alike and only its mean was."""
    condition: float


def solve(shares: F8, readings: F8, prior: F8, doubt: F8, noise: float) -> Solution:
    """Rates that explain the readings and stay near their priors.

    Minimises |shares·rates - readings|²/noise² + |(rates - prior)/doubt|² over [0, 1]: non-negative
    least squares with a ridge pull. Windows of steady training are alike; then only their mean is
    an equation, and what it cannot tell apart stays at its prior.

    Args:
        shares: Part of window w that family f runs, shape (w, f).
        readings: One activity per window, shape (w,).
        prior, doubt: Expected rate and its standard error, shape (f,).
        noise: Standard error of one reading.
    """
    condition = condition_of(shares)
    free = len(shares) >= LEAST_ROWS and condition <= MOST_CONDITION
    if not free:
        shares, readings = shares.mean(axis=0, keepdims=True), readings.mean(keepdims=True)
    return replace(solve_all(shares, readings, prior, doubt, noise), free=free, condition=condition)


def solve_all(shares: F8, readings: F8, prior: F8, doubt: F8, noise: float) -> Solution:
    """As `solve`, of all rows however alike they are: `left` says what they could not tell."""
    weight = 1.0 / np.maximum(doubt, 1e-6) ** 2
    square = shares.T @ shares / noise**2 + np.diag(weight)
    target = shares.T @ readings / noise**2 + weight * prior
    rates = _bounded(square, target, np.clip(prior, 0.0, 1.0))
    left = np.sqrt(np.clip(np.diag(np.linalg.inv(square)) * weight, 0.0, 1.0))
    return Solution(rates, left, True, float("nan"))


def condition_of(shares: F8) -> float:
    """Ratio of the largest to the smallest singular value, columns scaled alike; inf: singular."""
    size = np.linalg.norm(shares, axis=0)
    used = shares[:, size > 0] / size[size > 0]
    if not used.size or used.shape[0] < used.shape[1]:
        return float("inf")
    values = np.linalg.svd(used, compute_uv=False)
    return float(values[0] / values[-1]) if values[-1] > 1e-12 else float("inf")


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
