"""What counters add to a group of kernels: the activity expected of it, and its odds with theirs."""

from __future__ import annotations

import math
from dataclasses import replace

from brrrtop.estimator import families
from brrrtop.estimator.amounts import COUNTERS, SHAPES
from brrrtop.estimator.judging import Group
from brrrtop.estimator.sides import chance, log_odds
from collectors.wire import Metric

WEIGHT = 1.5
POINTS = 8.0
"""Points between two activities that make one unit of log-odds."""
_MOST_ODDS = 6.0


def works(group: Group) -> bool:
    return group.family.kind in (families.COMPUTE, families.MEMORY, "unknown")


def expected(group: Group, metric: Metric, clock: float) -> tuple[float, float]:
    """Activity expected of a group while it runs, and its standard error."""
    if not works(group):
        return 0.0, 1e-3
    if not group.filled:
        return 0.05, 0.05
    computes = group.family.kind == families.COMPUTE
    if metric == Metric.DRAM_ACTIVE:
        if group.memory_share_of_roof is not None:
            # Least bytes with shapes, most with a grid: the truth is near either.
            return min(1.0, group.memory_share_of_roof), 0.08 if group.level == SHAPES else 0.12
        return (0.25, 0.25) if computes and not group.is_score else (0.5, 0.25)
    tensor = group.facts.tensor_cores
    wanted = metric == Metric.TENSOR_ACTIVE
    if not computes:
        return (0.2, 0.3) if group.unknown else (0.01, 0.02)
    if tensor is not None and tensor != wanted:
        return 0.02, 0.05
    if group.compute_share_of_roof is not None:
        return min(1.0, group.compute_share_of_roof / clock), 0.08
    if group.is_score:
        return 0.2, 0.15
    return (0.55, 0.3) if tensor == wanted else (0.3, 0.3)


def odds_of(compute: float, memory: float) -> float:
    points = 100.0 * (compute - memory) / POINTS
    return min(_MOST_ODDS, max(-_MOST_ODDS, points)) if math.isfinite(points) else 0.0


def fused(group: Group, odds: float, told: bool) -> Group:
    """The group with the counters' odds added; both shown as a conflict where they disagree."""
    if not told or not works(group):
        return group
    before = log_odds(group.compute_probability)
    after = chance(before + WEIGHT * odds)
    beyond = group.beyond_sm
    conflict = before * odds < 0 and min(abs(before), abs(odds)) > 2
    certainty = 0.3 if conflict else min(0.98, abs(2 * after - 1))
    return replace(
        group,
        compute_probability=after,
        level=COUNTERS,
        certainty=certainty,
        unknown=False,
        beyond_sm=None if beyond is None else chance(log_odds(beyond) + WEIGHT * odds),
    )
