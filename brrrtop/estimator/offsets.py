"""What a strided pointwise kernel of ATen's spends on one element, by the dimensions of its offsets.

Such a kernel divides its index once for each dimension that is left after ATen has merged those that
lie together in all operands (aten/src/ATen/TensorIterator.cpp, `coalesce_dimensions`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache

from brrrtop.estimator.walks import Walk, merged
from brrrtop.tables import OpSignature


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one element."""

    issue: float
    """Instructions over the most an SM can issue in a cycle: at a pace of p elements per cycle and SM they
    take `issue` times p of it."""
    slope: float
    """Odds of the compute side for each e-fold of the two throughputs: 1.7 over what is left of their
    logarithm's error."""


BY_NAME = Cost(0.65, 3.8)
"""Where the bytes come from the name, which counts broadcast operands in full (least squares over 95
counted kinds leave 0.32 at a slope of 0.72)."""
ANY = Cost(0.445, 6.2)
"""Of dimensions that nobody knows, but bytes from shapes (97 counted kinds leave 0.26 at 0.94)."""
_UNROLLED_COPY, _UNROLLED = Cost(0.38, 20.0), Cost(0.545, 20.0)
"""Contiguous operands of several types: 0.36 to 0.42 counted where one is only converted, 0.54 to 0.56
where two are put together (21 kinds of 40 us and more, 6 kinds, H200)."""
_BY_DIMENSIONS = {1: Cost(0.48, 8.0), 2: Cost(0.42, 20.0), 3: Cost(0.5, 12.0)}
"""Of equal shapes only the strides differ, which nobody tells: 0.25 to 0.72 counted (36 kinds). Broadcast
along one side 0.34 to 0.48 (35 of 38), along the middle 0.40 to 0.43 (12, channels-last among them) or
0.47 to 0.53 (16 of 30)."""
_MANY = Cost(0.63, 12.0)
"""Of four and more: one kind was counted, of four."""
_AT_LEAST, _OFFSET, _WALKED = 0.195, 0.036, 20.0
"""Where strides are told: of an element, of one dimension of one operand's offset, and the slope. Over 145
counted kinds of copies, sums, products and negations of 10 us and more, of 1 to 6 dimensions, 0.07 of the
logarithm is left, and as much of 106 when only the others are fitted; 0.18 with the tables above (H200)."""
_PLAIN = re.compile(r"direct_copy_kernel|CUDAFunctor_add|MulFunctor|neg_kernel")
"""Functors that take next to nothing beside the offsets; sigmoid and tanh took a third more."""
_CASTING = Cost(0.7, 10.0)
"""Types are told apart while it runs: 0.59 to 0.81 counted (7 kinds)."""


def cost_of(name: str, op: OpSignature | None, walk: Walk | None = None) -> Cost:
    """Of one element of a strided kernel.

    Args:
        op: What it was called for; None where the bytes come from its name.
        walk: How it goes through its operands; None where nobody tells.
    """
    if casts(name):
        return _CASTING
    if op is None:
        return BY_NAME
    unrolled = "unrolled_elementwise" in name
    if walk is not None and not unrolled and _PLAIN.search(name):
        return Cost(_AT_LEAST + _OFFSET * walk.dimensions * walk.operands, _WALKED)
    count = None if unrolled else dimensions(op)
    return _BY_DIMENSIONS.get(count, _MANY) if count else measured_cost(name)


def measured_cost(name: str) -> Cost:
    """Of one element, beside bytes that do not come from the name and a layout that nobody knows."""
    if casts(name):
        return _CASTING
    if "unrolled_elementwise" in name:
        return _UNROLLED_COPY if "copy" in name else _UNROLLED
    return ANY


def casts(name: str) -> bool:
    """Whether a kernel looks up the types of its operands for each element (ATen's `gpu_kernel_impl`)."""
    return "gpu_kernel_impl<" in name and "elementwise_kernel<" in name


@lru_cache(maxsize=65536)
def dimensions(op: OpSignature) -> int | None:
    """Dimensions left of an op whose operands are broadcast against one another; None: not known.

    Each operand is taken as contiguous in its own shape.
    """
    shapes = [d for d in op.dims if isinstance(d, tuple) and d]
    if not shapes or not all(isinstance(n, int) for shape in shapes for n in shape):
        return None
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    whole = tuple(max(sizes) for sizes in zip(*padded, strict=True))
    if any(n not in (1, out) for shape in padded for n, out in zip(shape, whole, strict=True)):
        return None
    steps = [_steps(shape) for shape in (*padded, whole)]
    return merged(whole, steps, reversed(range(rank)))


def _steps(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Elements from one index to the next in each dimension; 0 where it is broadcast."""
    return tuple(
        0 if size == 1 else math.prod(shape[place + 1 :]) for place, size in enumerate(shape)
    )
