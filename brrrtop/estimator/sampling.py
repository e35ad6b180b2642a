"""Evidence L3 from counter samples of bursts: groups whose own activity could be told are judged by it.

Sampled are the tensor cores, the DRAM and, where the pass has room, the instruction issue. The
truth to meet (Nsight Compute) compares all pipes of the SMs with all levels of the memory, so a
high reading is proof and a low one is not: what a kernel does in the caches nobody sampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from brrrtop.ceilings import Ceilings
from brrrtop.estimator import families, fusing, learned, mixes, samples
from brrrtop.estimator.amounts import COUNTERS
from brrrtop.estimator.features import row_of
from brrrtop.estimator.filling import NEARLY_FULL, NEARLY_NS
from brrrtop.estimator.judging import Group
from brrrtop.estimator.names import NameFacts
from brrrtop.estimator.offsets import measured_cost
from brrrtop.estimator.samples import Expected, Rate
from brrrtop.estimator.sides import (
    at_most_even,
    chance,
    log_odds,
    pointwise_odds,
    scattered_below,
)
from brrrtop.tables import I8, Window
from collectors.wire import Metric

F8 = npt.NDArray[np.float64]

MOST_ERROR = 0.08
"""Standard error of tensor and DRAM activity up to which a group counts as measured."""
LEAST_DOUBT = 0.15
"""What a label lets expect of a group is never taken for surer than this: groups are measured."""
USES_TENSOR = 0.10
"""Kernels without tensor instructions were counted with up to 6 %: some of their integer work is
booked there."""
TENSOR_TURN = 0.68
"""Tensor activity above which a kernel that leaves the DRAM alone was on the compute side: below
it the caches that feed the tensor cores were as busy as they were (0.8 and more: 97 % of the time
compute; 0.5 to 0.7: 39 %; 15 scripts counted on an H200, benchmarks/truth)."""
BUSY, LAZY = 0.60, 0.45
"""Nsight Compute calls a kernel of less than a wave too small below 60 % of both throughputs;
those on the tensor cores below 45 % of what is sampled were too small for all of their time."""
DRAM_TURN = 0.55
"""DRAM activity above which kernels without tensor cores were on the memory side, whatever they
were, on counted H200 kernels (benchmarks/truth)."""
LEAST_RATE = 0.01
"""Of the DRAM, below which sampling tells nothing from nothing."""
HARDLY_ANY = 0.18
"""DRAM activity of a pointwise kernel below which it says nothing of the side."""
CACHED_BELOW = 0.30
"""With less than this, pointwise kernels were bound by caches about as often as by instructions."""
STREAMS = frozenset({"elementwise", "activation", "softmax", "norm", "layout", "concat", "random"})
"""Families that pass over their tensors once; others may wait for single accesses."""
_MOST_FROM_LOW = 1.0
"""Odds that come from a low reading: caches and latency do that too."""
_PRIOR_LEFT = 0.5
"""Of what the name said: a measurement of the very kernel takes most of its place."""


def refined(
    window: Window, groups: Sequence[Group], group_of: I8, ceilings: Ceilings
) -> tuple[Group, ...] | None:
    """The groups, those measured with evidence L3; None: no samples of use."""
    if window.samples is None:
        return None
    clock = ceilings.clock_ratio(mixes.mean(window, Metric.SM_CLOCK_HZ))
    expected = {
        "tensor": _expected(groups, Metric.TENSOR_ACTIVE, clock),
        "dram": _expected(groups, Metric.DRAM_ACTIVE, clock),
        "issue": Expected(np.full(len(groups), 0.3), np.full(len(groups), 0.3)),
    }
    found = samples.measured(window, group_of, expected)
    if found is None or "tensor" not in found or "dram" not in found:
        return None
    judged = [_judged(group, k, found) for k, group in enumerate(groups)]
    if (window.device.capability or ceilings.capability) == learned.GROWN_ON:
        judged = [_beside_trees(group, k, found) for k, group in enumerate(judged)]
    return tuple(_with_roofs(group, k, found, clock) for k, group in enumerate(judged))


def _expected(groups: Sequence[Group], metric: Metric, clock: float) -> Expected:
    each = [_of(group, metric, clock) for group in groups]
    return Expected(np.array([rate for rate, _ in each]), np.array([doubt for _, doubt in each]))


def _of(group: Group, metric: Metric, clock: float) -> tuple[float, float]:
    """What a label lets expect, never as sure as a measurement."""
    if not fusing.works(group):
        moves = metric == Metric.DRAM_ACTIVE
        return (0.1, 0.2) if moves else (0.0, 0.01)
    rate, doubt = fusing.expected(group, metric, clock)
    never = metric == Metric.TENSOR_ACTIVE and group.facts.tensor_cores is False
    return rate, doubt if never else max(doubt, LEAST_DOUBT)


def _judged(group: Group, k: int, found: dict[str, Rate]) -> Group:
    tensor, dram, issue = (found.get(column) for column in samples.COLUMNS)
    assert tensor is not None and dram is not None
    error = _error(k, found)
    if not _is_measured(group, k, found):
        return group
    compute, memory = float(tensor.rates[k]), float(dram.rates[k])
    issued = None
    if issue is not None and issue.errors[k] <= MOST_ERROR:
        issued = float(issue.rates[k])
    group = _filled(group, max(compute, memory, issued or 0.0), error)
    certain = fusing.POINTS / math.hypot(fusing.POINTS, 100.0 * error)
    pointwise = bool(group.facts.elements_per_thread)
    if issued is not None and (pointwise or compute <= USES_TENSOR):
        return fusing.fused(group, certain * fusing.odds_of(max(compute, issued), memory), True)
    if pointwise:
        return _pointwise(group, memory, certain)
    if compute > USES_TENSOR and loads_narrowly(group.facts) and memory < CACHED_BELOW:
        return group
    if compute > USES_TENSOR:
        return _fused(group, certain * _tensor_odds(max(compute, issued or 0.0), memory))
    # Nothing else of such a kernel was sampled: much traffic is proof, little says that it is not
    # the DRAM that holds up a kernel which only streams.
    odds = min(fusing.odds_of(DRAM_TURN, memory), _MOST_FROM_LOW)
    streams = group.family.name in STREAMS and (group.waves or 0) >= 4 and memory < LAZY
    return fusing.fused(group, certain * odds, memory > DRAM_TURN or streams)


def _beside_trees(group: Group, k: int, found: dict[str, Rate]) -> Group:
    """A measured group, half of its odds those of the trees, with the sampled rates as shares of the roofs.

    With trees that had not seen the script, 13 sampled ones of an H200 are at a split error of 6.3 points
    and 94 % of the right side so; at 7.9 and 89 % without, at 6.9 and 88 % with names alone.
    """
    if group.unknown or group.seen is None or not _is_measured(group, k, found):
        return group
    tensor, dram = float(found["tensor"].rates[k]), float(found["dram"].rates[k])
    computes = tensor > USES_TENSOR and not group.facts.elements_per_thread
    compute = tensor if computes else group.seen.compute_roof
    seen = replace(group.seen, memory_roof=max(dram, LEAST_RATE), compute_roof=compute)
    row, trees = row_of(seen), learned.shipped()
    side = chance((trees.odds(row) + log_odds(group.compute_probability)) / 2)
    told = None
    if group.beyond_sm is not None:
        told = chance((trees.odds(row, learned.BEYOND_SM) + log_odds(group.beyond_sm)) / 2)
    certainty = min(0.98, abs(2 * side - 1)) if group.filled else group.certainty
    return replace(
        group, compute_probability=side, beyond_sm=told, certainty=certainty, level=COUNTERS,
        unknown=False,
    )  # fmt: skip


def _is_measured(group: Group, k: int, found: dict[str, Rate]) -> bool:
    return fusing.works(group) and _error(k, found) <= MOST_ERROR


def _error(k: int, found: dict[str, Rate]) -> float:
    return math.hypot(float(found["tensor"].errors[k]), float(found["dram"].errors[k]))


def loads_narrowly(facts: NameFacts) -> bool:
    """Whether a product loads one or two elements at a time, since its rows are not aligned.

    Its tensor cores wait for the shared memory (H200: 23-33 % of their time busy, shared memory
    60-90 %, DRAM 4 %). Nothing that saves traffic helps; aligned rows do, which is arithmetic's side.
    """
    return facts.alignment is not None and facts.alignment <= 2


def _with_roofs(group: Group, k: int, found: dict[str, Rate], clock: float) -> Group:
    """A measured group's shares of the roofs, where nothing else told them."""
    if group.level != COUNTERS:
        return group
    compute, memory = group.compute_share_of_roof, group.memory_share_of_roof
    tensor, dram = float(found["tensor"].rates[k]), float(found["dram"].rates[k])
    if compute is None and tensor > USES_TENSOR and not group.facts.elements_per_thread:
        compute = tensor * clock  # counters count cycles, the roof is the datasheet's
    return replace(
        group,
        compute_share_of_roof=compute,
        memory_share_of_roof=dram if memory is None else memory,
    )


def _tensor_odds(compute: float, memory: float) -> float:
    """Odds of the compute side of a kernel on the tensor cores."""
    by_level = fusing.odds_of(compute, TENSOR_TURN)
    return min(fusing.odds_of(compute, memory), max(-_MOST_FROM_LOW, by_level))


def _pointwise(group: Group, memory: float, certain: float) -> Group:
    """Bytes from the grid were all that was known; what the DRAM really moved takes their place.

    With hardly any it may have been the caches: then the grid says whether accesses coalesced.
    """
    if memory < HARDLY_ANY:
        return group
    cost, slow = measured_cost(group.name), scattered_below(group.name, False, 0.0)
    odds = pointwise_odds(group.facts, memory, group.pace, cost=cost, slow=slow)
    if memory < CACHED_BELOW:
        odds = min(odds, _MOST_FROM_LOW)
    probability = chance(certain * odds)
    return replace(
        group, compute_probability=probability, level=COUNTERS, unknown=False,
        certainty=min(0.98, abs(2 * probability - 1)),
    )  # fmt: skip


def _fused(group: Group, odds: float) -> Group:
    held = min(max(group.compute_probability, 0.02), 0.98)
    before = _PRIOR_LEFT * math.log(held / (1 - held))
    told = fusing.fused(replace(group, compute_probability=chance(before)), odds, True)
    even = at_most_even(told.compute_probability, group.name)
    certainty = min(told.certainty, abs(2 * even - 1))
    return replace(told, compute_probability=even, certainty=certainty)


def _filled(group: Group, busiest: float, error: float) -> Group:
    """Whether a kernel of less than a wave keeps the GPU busy, by what it was seen to do."""
    if group.waves is None or group.waves >= 1 or group.family.kind == families.SPIN:
        return group
    if not group.filled and busiest - error >= BUSY:
        return replace(group, filled=True)
    long = group.waves >= NEARLY_FULL and group.total_ns >= NEARLY_NS * group.count
    if group.filled and not long and group.facts.tensor_cores and busiest + error < LAZY:
        return replace(group, filled=False)
    return group
