"""Evidence L3: what the GPU's own counters say of the kernels that ran meanwhile.

Samples of bursts are dense enough to be solved for each kernel (`sampling`). GPM readings are
averages over more time, so they are shared out: each family's tensor, FP32 and DRAM activity is
found that explains them best (regime theory study, 1.6). The prediction from the labels is held
against them, and a gap lowers every certainty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from brrrtop.ceilings import Ceilings
from brrrtop.estimator import learned, mixes, sampling
from brrrtop.estimator.amounts import NAME
from brrrtop.estimator.fusing import expected, fused, odds_of, works
from brrrtop.estimator.judging import Group
from brrrtop.estimator.sides import chance, log_odds
from brrrtop.estimator.solving import Solution, solve
from brrrtop.model import CounterCheck
from brrrtop.tables import Window
from collectors.wire import Metric

I8 = npt.NDArray[np.int64]
F8 = npt.NDArray[np.float64]

MOST_GAP = 0.15
"""Predicted and measured activity further apart than this contradict each other."""
LEAST_BUSY = 0.10
"""Less kernel time than this tells nothing of the kernels."""
LEAST_LEFT = 0.6
"""A family is only judged by the counters where they removed this much of its doubt."""
OWN_RATES = 24
"""Kernels of no known name with rates of their own; what costs less than these shares one."""
FAMILY_PART = 0.25
"""Of a kernel's odds, what its family's rates have beside the trees (`_beside_trees`)."""
NOISE = 0.03
"""Standard error of a GPM reading over 250 ms, seen on an H200."""
METRICS = (Metric.TENSOR_ACTIVE, Metric.FP32_ACTIVE, Metric.DRAM_ACTIVE)


@dataclass(frozen=True, slots=True)
class Refined:
    """Groups with what the counters say of them."""

    groups: tuple[Group, ...]
    check: CounterCheck | None
    trust: float = 1.0
    """Factor of every certainty; below 1 where counters contradict the labels."""
    sampled: bool = False
    """Counter samples were used, kernel by kernel."""


def refined(
    window: Window, groups: Sequence[Group], group_of: I8, ceilings: Ceilings | None
) -> Refined:
    """The groups after a look at the window's gauges; unchanged where there are none of use."""
    plain = Refined(tuple(groups), None)
    if not groups or ceilings is None or window.turns is not None:
        return plain  # counters are the device's, and would be read as the trainer's
    sampled = sampling.refined(window, groups, group_of, ceilings)
    if sampled is not None:
        plain = Refined(sampled, None, sampled=True)
    readings = {metric: mixes.mean(window, metric) for metric in METRICS}
    busy = mixes.busy_share(window)
    tensor, dram = readings[Metric.TENSOR_ACTIVE], readings[Metric.DRAM_ACTIVE]
    if tensor is None or dram is None or busy < LEAST_BUSY:
        return plain
    found = _solved(window, plain.groups, group_of, ceilings, busy)
    return replace(found, sampled=plain.sampled)


@dataclass(frozen=True, slots=True, eq=False)
class _Meter:
    """One activity of the GPU: as the labels predict it, as read, and as best explained."""

    predicted: float
    measured: float
    explained: float
    loose: float
    """Standard error of the prediction."""
    solution: Solution
    moved: F8
    """How much of the reading each family explains beyond what was expected of it, shape (f,)."""

    @property
    def unexplained(self) -> float:
        return abs(self.explained - self.measured)

    @property
    def surprises(self) -> bool:
        """The reading is news: a prediction from names alone is loose."""
        return abs(self.predicted - self.measured) > max(MOST_GAP, self.loose)


def _solved(
    window: Window, groups: tuple[Group, ...], group_of: I8, ceilings: Ceilings, busy: float
) -> Refined:
    names, family_of = _families(groups)
    if not names:
        return Refined(groups, None)
    meters = {
        metric: meter
        for metric in METRICS
        if (meter := _meter(window, groups, group_of, family_of, metric, ceilings, busy))
    }
    judged = tuple(
        _by_solution(g, int(f), meters, ceilings) if f >= 0 else g
        for g, f in zip(groups, family_of, strict=True)
    )
    tensor, dram = meters[Metric.TENSOR_ACTIVE], meters[Metric.DRAM_ACTIVE]
    worst = max(tensor, dram, key=lambda m: m.unexplained)
    turned = any(
        a.filled and (a.compute_probability - 0.5) * (b.compute_probability - 0.5) < 0
        for a, b in zip(groups, judged, strict=True)
    )
    contradicted = worst.unexplained > MOST_GAP or (turned and (tensor.surprises or dram.surprises))
    blamed = max(tensor, dram, key=lambda m: abs(m.predicted - m.measured))
    check = CounterCheck(
        tensor_predicted=tensor.predicted,
        tensor_measured=tensor.measured,
        dram_predicted=dram.predicted,
        dram_measured=dram.measured,
        suspect=names[int(np.argmax(blamed.moved))] if contradicted else None,
        solved=dram.solution.free,
    )
    trust = max(0.4, 1.0 - 2.0 * max(0.0, worst.unexplained - MOST_GAP / 2))
    return Refined(judged, check, trust if contradicted else 1.0)


def _meter(
    window: Window,
    groups: tuple[Group, ...],
    group_of: I8,
    family_of: npt.NDArray[np.int64],
    metric: Metric,
    ceilings: Ceilings,
    busy: float,
) -> _Meter | None:
    """What one metric says; None where it was not read."""
    mean = mixes.mean(window, metric)
    if mean is None:
        return None
    size = int(family_of.max()) + 1
    weights = np.asarray(np.bincount(group_of, mixes.inside(window), len(groups)), np.float64)
    # Counters count cycles, ceilings operations.
    clock = ceilings.clock_ratio(mixes.mean(window, Metric.SM_CLOCK_HZ))
    each = np.array([expected(g, metric, clock) for g in groups]).reshape(-1, 2)
    prior = _by_family(each[:, 0], weights, family_of, size)
    doubt = _by_family(each[:, 1], weights, family_of, size)
    whole = mixes.shares(
        window, family_of[group_of], size, [(window.span.t0_ns, window.span.t1_ns)]
    )
    shares, values = mixes.equations(window, family_of[group_of], size, metric)
    if not len(values):
        shares, values = whole, np.array([mean])
    solution = solve(shares, values, prior, doubt, NOISE)
    return _Meter(
        predicted=float(whole[0] @ prior) / busy,
        measured=mean / busy,
        explained=float(whole[0] @ solution.rates) / busy,
        loose=float(whole[0] @ doubt) / busy,
        solution=solution,
        moved=np.abs(whole[0] * (solution.rates - prior)),
    )


def _families(groups: Sequence[Group]) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Kernels that are taken to have the same rates: names, and which each group is of; -1: none.

    Kernels of no known name have nothing in common: each is a family of its own, the dearest
    `OWN_RATES` of them, or one average would speak for all.
    """
    unknown = sorted(
        (i for i, g in enumerate(groups) if g.unknown), key=lambda i: -groups[i].total_ns
    )
    own = {
        index: f"{groups[index].name}, {groups[index].blocks} blocks"
        for index in unknown[:OWN_RATES]
    }
    told = [
        own.get(i, "attention scores" if g.is_score else g.family.name) if works(g) else None
        for i, g in enumerate(groups)
    ]
    names = sorted({name for name in told if name is not None})
    places = {name: place for place, name in enumerate(names)}
    return names, np.array([places[n] if n is not None else -1 for n in told], np.int64)


def _by_solution(
    group: Group, family: int, meters: dict[Metric, _Meter], ceilings: Ceilings
) -> Group:
    """A kernel judged by its family's rates, where only its name was known."""
    if group.level > NAME or not group.filled:
        return group
    found = {metric: meter.solution for metric, meter in meters.items()}
    pipes = [m for m in (Metric.TENSOR_ACTIVE, Metric.FP32_ACTIVE) if m in found]
    pipe = max(pipes, key=lambda m: found[m].rates[family])
    memory = found[Metric.DRAM_ACTIVE]
    told = min(memory.left[family], found[pipe].left[family]) <= LEAST_LEFT
    compute, moved = float(found[pipe].rates[family]), float(memory.rates[family])
    if Metric.FP32_ACTIVE not in found and compute <= sampling.USES_TENSOR:
        # Where samples take the counters, nobody reads the CUDA cores: only much traffic tells.
        odds = odds_of(sampling.DRAM_TURN, moved)
        return fused(group, odds, told and moved > sampling.DRAM_TURN)
    after = fused(group, odds_of(compute, moved), told)
    if max(compute, moved) > sampling.DRAM_TURN or ceilings.capability != learned.GROWN_ON:
        return after  # a high reading is proof
    return _beside_trees(group, after)


def _beside_trees(group: Group, told: Group) -> Group:
    """A kernel judged by its family's rates, of whose odds the trees keep most.

    With trees that had not seen the script 69 of an H200 are at a split error of 8.9 points, 92.7 % of the
    right side and 62 right regimes so; at 10.5, 91.3 % and 61 with the counters' odds in full, at 7.9, 92.3 %
    and 60 with names alone.
    """
    if told is group or group.unknown:
        return told
    side = _mixed(group.compute_probability, told.compute_probability)
    beyond_sm = told.beyond_sm
    if group.beyond_sm is not None and beyond_sm is not None:
        beyond_sm = _mixed(group.beyond_sm, beyond_sm)
    return replace(
        told,
        compute_probability=side,
        beyond_sm=beyond_sm,
        certainty=min(told.certainty, abs(2 * side - 1)),
    )


def _mixed(before: float, after: float) -> float:
    return chance((1 - FAMILY_PART) * log_odds(before) + FAMILY_PART * log_odds(after))


def _by_family(values: F8, weights: F8, family_of: npt.NDArray[np.int64], size: int) -> F8:
    """Time-weighted means per family, shape (size,)."""
    keep = family_of >= 0
    time = np.bincount(family_of[keep], weights[keep], size)
    total = np.bincount(family_of[keep], (values * weights)[keep], size)
    return np.asarray(total / np.maximum(time, 1.0), np.float64)
