"""From the split and its evidence to a verdict, with a confidence that means something.

`mixed` when the two largest shares are within 10 points, Nsight Compute's own margin between its
compute and memory verdicts; `unknown` when too much is unknown or the evidence is weak.
"""

from __future__ import annotations

from dataclasses import dataclass

from brrrtop.model import Account, Regime, Split

MARGIN = 0.10
FLOOR = 0.35
"""Below this confidence no verdict is given."""
MOST_UNKNOWN = 0.35
LEAST_ACTIVITIES = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    regime: Regime
    cause: str | None
    confidence: float
    runner_up: Regime | None


def judge(account: Account, split: Split, certainty: float, activities: int) -> Verdict:
    """The regime of a window.

    Args:
        certainty: Time-weighted certainty of the kernels' sides, 0..1; only the part of the
            window that is kernels leans on it.
        activities: Records behind it; a handful says nothing.
    """
    if account.duration_ns <= 0 or activities < LEAST_ACTIVITIES:
        return Verdict(Regime.UNKNOWN, None, 0.0, None)
    shares = {
        Regime.COMPUTE: split.compute,
        Regime.MEMORY: split.memory,
        Regime.OVERHEAD: split.overhead,
    }
    ranked = sorted(shares, key=lambda r: -shares[r])
    first, second = ranked[0], ranked[1]
    lead = shares[first] - shares[second]
    overhead_counts = Regime.OVERHEAD in (first, second) and (
        first is Regime.OVERHEAD or lead < MARGIN
    )
    cause = _cause(account) if overhead_counts else None
    # Overhead is measured, sides are judged: doubt about sides only touches what kernels fill.
    doubt = (split.compute + split.memory) * (1 - certainty)
    if first is Regime.OVERHEAD:
        doubt *= 0.5
    elif second is Regime.OVERHEAD:
        doubt = min(doubt, shares[first])
    confidence = min(0.99, max(0.0, (0.55 + 0.9 * lead) * (1 - split.unknown) - 0.8 * doubt))
    if split.unknown > MOST_UNKNOWN:
        return Verdict(Regime.UNKNOWN, cause, round(confidence, 3), first)
    if lead < MARGIN:
        agreed = 0.5 + 2 * (MARGIN - lead) - doubt
        return Verdict(Regime.MIXED, cause, round(min(0.9, max(0.2, agreed)), 3), first)
    if confidence < FLOOR:
        return Verdict(Regime.UNKNOWN, cause, round(confidence, 3), first)
    return Verdict(first, cause, round(confidence, 3), second)


def _cause(account: Account) -> str | None:
    """The largest part of the overhead."""
    parts = {
        **account.idle_ns,
        "exposed_comm": account.exposed_comm_ns,
        "exposed_copy": account.exposed_copy_ns,
        "underfilled": account.underfilled_ns,
    }
    best = max(parts, key=lambda cause: parts[cause])
    return best if parts[best] > 0 else None
