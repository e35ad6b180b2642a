"""From the split and its evidence to a verdict, with a confidence that means something.

`mixed` when the two largest shares are within 10 points, Nsight Compute's own margin between its
compute and memory verdicts; `unknown` when too much is unknown or the evidence is weak.

The confidence is that of the worst case: unknown time counts for the runner-up, and kernels lie
on the other side as often as their certainty says. It is 0.5 where a verdict is about to tip into
another and the largest over all views of the same window, so that knowing more never makes less
sure; and no verdict is surer than a single kernel name that would turn it. Over the public set
verdicts with 0.8 and more were right (benchmarks/truth/calibration.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brrrtop.estimator.views import View
from brrrtop.model import Account, Regime, Split

MARGIN = 0.10
FLOOR = 0.30
"""Below this confidence no verdict is given."""
MOST_UNKNOWN = 0.35
LEAST_ACTIVITIES = 8
_CLEAR_SLOPE = 1.2
"""Confidence per share of lead: 0.5 at the margin, 0.8 at a lead of 35 points."""
_MIXED_SLOPE = 2.0
_MOST = 0.99


@dataclass(frozen=True, slots=True)
class Verdict:
    regime: Regime
    cause: str | None
    confidence: float
    runner_up: Regime | None


def judge(
    account: Account, split: Split, on_chip: float, views: Sequence[View], activities: int
) -> Verdict:
    """The regime of a window.

    Args:
        on_chip: Part of `split.memory` that waits for memory of the SM's own, and counts with the
            arithmetic it feeds: less traffic would not help it.
        views: What the kernels come to with all that is known, and with less.
        activities: Records behind it; a handful says nothing.
    """
    if account.duration_ns <= 0 or activities < LEAST_ACTIVITIES:
        return Verdict(Regime.UNKNOWN, None, 0.0, None)
    shares = {
        Regime.COMPUTE: split.compute + on_chip,
        Regime.MEMORY: split.memory - on_chip,
        Regime.OVERHEAD: split.overhead,
    }
    first, second = sorted(shares, key=lambda r: -shares[r])[:2]
    lead = shares[first] - shares[second]
    overhead_counts = first is Regime.OVERHEAD or (second is Regime.OVERHEAD and lead < MARGIN)
    cause = _cause(account) if overhead_counts else None
    sure = round(max((_confidence(account, view) for view in views), default=0.0), 3)
    if split.unknown > MOST_UNKNOWN or sure < FLOOR:
        # What is not known may be anything: it has to be less than what is nearest.
        near = shares[first] > split.unknown
        return Verdict(Regime.UNKNOWN, cause if near else None, sure, first if near else None)
    if lead < MARGIN:
        return Verdict(Regime.MIXED, cause, sure, first)
    return Verdict(first, cause, sure, second)


def _confidence(account: Account, view: View) -> float:
    """Of the best verdict under one view of the kernels."""
    whole = account.duration_ns
    work = (account.worked_ns - account.exposed_comm_ns - account.exposed_copy_ns) / whole
    compute, memory, under = work * view.compute, work * view.memory, work * view.underfilled
    outside = (account.exposed_comm_ns + account.exposed_copy_ns + account.idle_total_ns) / whole
    lost = max(0.0, (whole - account.worked_ns - account.idle_total_ns) / whole)
    unknown = work * view.unknown + lost
    side, fill = work * view.side_swing, work * view.fill_swing
    overhead, open_ = outside + under, work * view.unplaced
    clear = max(
        overhead - fill - max(compute + min(side, memory), memory + min(side, compute)) - fill,
        compute - open_ - side - max(memory + side, overhead + open_) - fill,
        memory - open_ - side - max(compute + side, overhead + open_) - fill,
    )
    first, second = sorted((compute, memory, overhead))[:-3:-1]
    apart = first - second + side + fill + unknown + open_
    sure = min(0.5 + _CLEAR_SLOPE * (clear - unknown - MARGIN), _unturned(view, work, overhead))
    mixed = 0.5 + _MIXED_SLOPE * (MARGIN - apart)
    return min(_MOST, max(0.0, sure, mixed))


def _unturned(view: View, work: float, overhead: float) -> float:
    """Chance that no single name is on the other side and turns the verdict with it; 1: none could.

    Args:
        work: Share of the wall time that kernels have.
        overhead: Share of it that they do not have, or do not fill.
    """
    compute, memory = work * view.compute, work * view.memory
    sure = 1.0
    for one_compute, one_memory, certainty in view.dearest:
        if compute > memory:
            left, other = compute - work * one_compute, memory + work * one_compute
        else:
            left, other = memory - work * one_memory, compute + work * one_memory
        if left < max(other, overhead) and max(compute, memory) > overhead:
            sure = min(sure, (1.0 + certainty) / 2)
    return sure


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
