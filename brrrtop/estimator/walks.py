"""How ATen walks the operands of a pointwise op whose strides were recorded.

Source: aten/src/ATen/TensorIterator.cpp (`reorder_dimensions`, `allocate_or_resize_outputs`,
`coalesce_dimensions`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from brrrtop.estimator.ops import TYPE_BYTES
from brrrtop.tables import OpSignature

WRITES_ONLY = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""Of the ops that end in an underscore those that do not read what they update."""
Steps = list[int]
"""Elements from one index to the next, by dimension; 0 where the operand is broadcast or expanded."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as it was given."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]
    element_bytes: int


@dataclass(frozen=True, slots=True)
class Walk:
    """Of one kernel over its operands."""

    elements: int
    """Of the result."""
    dimensions: int
    """Left once those are merged that lie together in all operands."""
    operands: int
    """Tensors read and written, each with an offset of its own: one that is updated in place is two."""
    size_bytes: float
    """What is read and written of them; what lies under a step of 0 counts once."""
    held_bytes: float
    """The same with what is updated in place once: what a cache has to hold."""


@lru_cache(maxsize=65536)
def walk_of(op: OpSignature, tensors: int | None) -> Walk | None:
    """The walk of the kernel that does an op; None where nobody tells strides, or where it is open which
    tensors the kernel works on.

    Args:
        tensors: That it reads and writes, by its name.
    """
    if not op.strides or not tensors:
        return None
    in_place = op.name.endswith("_") and op.name not in WRITES_ONLY
    given = _given(op, tensors if op.name in WRITES_ONLY else tensors - 1)
    whole = _whole([one.dims for one in given]) if given else None
    if not given or whole is None:
        return None
    each = [one.element_bytes for one in given]
    steps = [_steps(one, len(whole)) for one in given]
    order = _ordered(whole, steps, each)
    held = size = _bytes(whole, steps, each)
    if op.name not in WRITES_ONLY:
        if not in_place and len(set(each)) > 1:
            return None  # what type the result has is open
        written = steps[0] if in_place else _dense(whole, order)
        size += _bytes(whole, [written], each[:1])
        steps = [written, *steps]
    held = held if in_place else size
    dimensions = merged(whole, steps, order)
    return Walk(math.prod(whole), dimensions, len(steps), float(size), float(held))


def _given(op: OpSignature, count: int) -> list[Operand] | None:
    """As many tensors as the kernel is given: tensors without dimensions are constants to some of them."""
    found = []
    for dims, strides, kind in zip(op.dims, op.strides, op.types, strict=False):
        if kind not in TYPE_BYTES:
            continue
        if not _counts(dims, 1):
            return None
        steps = strides or _contiguous(dims)
        if not _counts(steps, 0) or len(steps) != len(dims):
            return None
        found.append(Operand(dims, steps, TYPE_BYTES[kind]))
    ways = ([one for one in found if one.dims], found)
    return next((way for way in ways if way and len(way) == count), None)


def _counts(value: Any, least: int) -> bool:
    return isinstance(value, tuple) and all(type(n) is int and n >= least for n in value)


def _contiguous(dims: Sequence[int]) -> tuple[int, ...]:
    return tuple(math.prod(dims[place + 1 :]) for place in range(len(dims)))


def _whole(shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Shape of the result; None where the operands cannot be broadcast against one another."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    whole = tuple(map(max, zip(*padded, strict=True)))
    fits = all(n in (1, out) for shape in padded for n, out in zip(shape, whole, strict=True))
    return whole if fits else None


def _steps(one: Operand, rank: int) -> Steps:
    told = [0 if n == 1 else step for n, step in zip(one.dims, one.strides, strict=True)]
    return [0] * (rank - len(told)) + told


def _ordered(whole: Sequence[int], steps: Sequence[Steps], each: Sequence[int]) -> list[int]:
    """Dimensions, innermost first: the first operand that tells two apart decides."""
    order = list(range(len(whole)))[::-1]
    for start in range(1, len(order)):
        at = start
        for other in reversed(range(start)):
            sign = _compared(order[other], order[at], whole, steps, each)
            if sign > 0:
                order[other], order[at] = order[at], order[other]
                at = other
            elif sign < 0:
                break
    return order


def _compared(
    one: int, other: int, whole: Sequence[int], steps: Sequence[Steps], each: Sequence[int]
) -> int:
    """Below 0 where dimension `one` lies within `other`, above 0 the other way round, 0: nobody tells."""
    for operand, size in zip(steps, each, strict=True):
        near, far = operand[one] * size, operand[other] * size
        if not near or not far:
            continue
        if near != far:
            return -1 if near < far else 1
        if whole[one] > whole[other]:
            return 1
    return 0


def _dense(whole: Sequence[int], order: Sequence[int]) -> Steps:
    """Steps of a new tensor with its dimensions in that order."""
    steps, reach = [0] * len(whole), 1
    for place in order:
        steps[place] = reach
        reach *= whole[place]
    return steps


def _bytes(whole: Sequence[int], steps: Sequence[Steps], each: Sequence[int]) -> int:
    """Of the elements touched; windows that overlap reach no further than their last."""
    total = 0
    for operand, size in zip(steps, each, strict=True):
        told = [(n, step) for n, step in zip(whole, operand, strict=True) if step]
        reach = 1 + sum((n - 1) * step for n, step in told)
        total += size * min(math.prod(n for n, _ in told), reach)
    return total


def merged(whole: Sequence[int], steps: Sequence[Sequence[int]], order: Iterable[int]) -> int:
    """Dimensions left once those are put together that lie together in all operands.

    Args:
        whole: Sizes of the result.
        steps: Of each operand, by dimension.
        order: Of the dimensions, the quickest first.
    """
    left: list[tuple[int, list[int]]] = []
    for place in order:
        size, here = whole[place], [operand[place] for operand in steps]
        if size == 1:
            continue
        if left and all(a * left[-1][0] == b for a, b in zip(left[-1][1], here, strict=True)):
            left[-1] = (left[-1][0] * size, left[-1][1])
        else:
            left.append((size, here))
    return len(left)
