"""How a framework op was called, as a trace writes it: shapes, types, constants and strides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from brrrtop.model.tables import Bool
from collectors.protocol import bodies

_NO_TENSOR = frozenset(
    {"", "Scalar", "ScalarList", "GenericList", "TensorList", "Int", "Bool", "Double"}
)


def signatures_of(
    calls: Iterable[tuple[str, bytes, bytes, bytes, bytes]],
) -> tuple[Bool, list[list[Any]], list[bytes]]:
    """Which calls speak of tensors, all as `[name, dims, types, concrete]`, their strides as text.

    Args:
        calls: Name, dims, types, concrete and strides, the last four as JSON.
    """
    rows: list[list[Any]] = []
    strides: list[bytes] = []
    for name, *texts, steps in calls:
        rows.append([name, *map(_list, texts)])
        strides.append(steps)
    return np.array([_says_shapes(*row[:3]) for row in rows], np.bool_), rows, strides


def _list(text: bytes) -> list[Any]:
    try:
        value = msgspec.json.decode(text) if text else []
    except bodies.FAULTS:
        return []
    return value if isinstance(value, list) else []


def _says_shapes(name: str, dims: list[Any], types: list[Any]) -> bool:
    if "::" not in name or name.startswith("autograd::"):
        return False
    return any(dims) or any(isinstance(t, str) and t not in _NO_TENSOR for t in types)


def sendable(number: int, row: list[Any], strides: bytes) -> list[Any]:
    """An op as a frame may carry it: without its inputs where they are nothing that torch writes."""
    op = [number, *row, *_strides_of(row[1], strides)]
    try:
        msgspec.convert(op, bodies.Op)
    except msgspec.ValidationError:
        return [*op[:2], [], [], []]
    return op


def _strides_of(shapes: list[Any], text: bytes) -> tuple[list[list[int]], ...]:
    """The strides of one call, one list an input; none where nobody tells.

    Contiguous tensors and lists of tensors have an empty one, and dimensions of one have stride 0: calls
    that differ in nothing else are one.

    Args:
        shapes: One entry an input.
        text: The strides of the same as JSON.
    """
    steps = _list(text)
    if not any(shapes) or len(shapes) != len(steps):
        return ()
    return ([_odd(*both) for both in zip(shapes, steps, strict=True)],)


def _odd(shape: Any, strides: Any) -> list[int]:
    """The strides of a tensor that does not lie contiguous."""
    if not _plain(shape) or not _plain(strides) or len(shape) != len(strides) or 0 in shape:
        return []
    reach, odd = 1, False
    for size, step in zip(reversed(shape), reversed(strides), strict=True):
        odd = odd or (size != 1 and step != reach)
        reach *= size
    return [0 if n == 1 else step for n, step in zip(shape, strides, strict=True)] if odd else []


def _plain(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int for n in value)
