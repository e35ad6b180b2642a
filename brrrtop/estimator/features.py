"""What is known of a kernel as one row of numbers, for the trees that tell its side (`learned`).

What nobody knows is NaN: the trees were grown with each kind of evidence missing as well. Amounts that
span decades are natural logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from brrrtop.estimator.families import Family
from brrrtop.estimator.names import NameFacts
from brrrtop.estimator.traits import Trait, traits_of

_TRAITS = tuple(trait for trait in Trait if trait)
_BITS = {"fp4": 4, "fp8": 8, "int8": 8, "fp16": 16, "bf16": 16, "tf32": 19, "fp32": 32, "fp64": 64}
"""Of an element; TF32 keeps 19 of its 32."""
NAME_COLUMNS = (
    "prior_odds",
    *(f"trait_{trait.name}" for trait in _TRAITS),
    "tensor_cores", "element_bytes", "elements_per_thread", "tensor_count", "alignment", "fused_ops",
    "strided", "only_reads", "backward",
    "tile_m", "tile_n", "tile_k", "tile_least", "tile_most",
    "stages", "cluster", "a_turned", "b_turned",
)  # fmt: skip
"""From the name alone."""
COLUMNS = (
    *NAME_COLUMNS,
    "precision_bits", "is_score", "threads", "registers", "shared_bytes", "blocks_per_sm", "occupancy",
    "waves", "blocks", "mean_ns", "block_ns",
    "compute_roof", "memory_roof", "roof_ratio", "nearest_roof",
    "intensity", "size_bytes", "thread_bytes", "cached", "pace", "issue_ratio",
    "inner_least", "inner_most", "inner_k",
)  # fmt: skip
"""In the order of a row."""
RISING = frozenset({"compute_roof", "roof_ratio", "issue_ratio"})
"""The more of these, the likelier the compute side, all else equal; the trees are held to that."""
FALLING = frozenset({"memory_roof"})
"""The more of it, the less likely."""
_THREADS_PER_SM = 2048
"""Of compute capability 9.0 (`occupancy`), the only one with trees."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A group of equal kernels on a known device."""

    name: str
    family: Family
    facts: NameFacts
    mean_ns: float
    blocks: int
    threads: int
    """Of a block."""
    registers: int
    """Of a thread; 0: not told."""
    shared_bytes: int
    """Of a block."""
    blocks_per_sm: int | None
    waves: float | None
    precision: str | None
    flop: float | None
    size_bytes: float | None
    compute_roof: float | None
    """Shares of the datasheet's ceilings."""
    memory_roof: float | None
    cached: bool
    pace: float | None
    """Elements of a pointwise kernel per cycle and SM."""
    issue: float
    """Instructions an element over the most an SM issues in a cycle (`offsets.Cost`)."""
    inner: tuple[int, ...]
    """M, N, K of a product."""
    is_score: bool


def row_of(seen: Seen) -> npt.NDArray[np.float64]:
    """The row, shape (len(COLUMNS),)."""
    compute, memory = _log(seen.compute_roof), _log(seen.memory_roof)
    pace, size = _log(seen.pace), _log(seen.size_bytes)
    m, n, k = seen.inner if len(seen.inner) == 3 else (0, 0, 0)
    per_sm = seen.blocks_per_sm
    bits = _BITS.get(seen.precision or seen.facts.precision or "")
    numbers = (
        _or_nan(bits),
        float(seen.is_score),
        float(seen.threads),
        float(seen.registers) if seen.registers else math.nan,
        math.log1p(seen.shared_bytes),
        _or_nan(per_sm),
        per_sm * seen.threads / _THREADS_PER_SM if per_sm else math.nan,
        _log(seen.waves),
        _log(seen.blocks),
        _log(seen.mean_ns),
        _log(seen.mean_ns) - _log(seen.blocks),
        compute,
        memory,
        compute - memory,
        _larger(compute, memory),
        _log(seen.flop) - size,
        size,
        size - _log(seen.blocks * seen.threads),
        math.nan if seen.size_bytes is None else float(seen.cached),
        pace,
        math.log(seen.issue) + pace - memory,
        _log(min(m, n)),
        _log(max(m, n)),
        _log(k),
    )
    return np.array((*_of_name(seen.name, seen.family, seen.facts), *numbers))


@lru_cache(maxsize=16384)
def _of_name(name: str, family: Family, facts: NameFacts) -> tuple[float, ...]:
    held = min(max(family.prior, 0.02), 0.98)
    traits = traits_of(name)
    m, n = facts.tile or (None, None)
    return (
        math.log(held / (1 - held)),
        *(float(bool(trait & traits)) for trait in _TRAITS),
        math.nan if facts.tensor_cores is None else float(facts.tensor_cores),
        _or_nan(facts.element_bytes),
        _or_nan(facts.elements_per_thread),
        _or_nan(facts.tensor_count),
        _or_nan(facts.alignment),
        _or_nan(facts.fused_ops),
        float(facts.strided),
        float(facts.only_reads),
        float(facts.backward),
        _or_nan(m),
        _or_nan(n),
        _or_nan(facts.tile_k),
        _or_nan(min(facts.tile) if facts.tile else None),
        _or_nan(max(facts.tile) if facts.tile else None),
        _or_nan(facts.stages),
        _or_nan(facts.cluster),
        _or_nan(facts.a_turned),
        _or_nan(facts.b_turned),
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _log(value: float | None) -> float:
    return math.log(value) if value and value > 0 else math.nan


def _larger(a: float, b: float) -> float:
    return a if math.isnan(b) or a > b else b
