"""Strides as a trace writes them → what they say beside the shapes."""

from __future__ import annotations

from typing import Any

import msgspec

from brrrtop.protocol.bodies import FAULTS


def strides_of(shapes: list[Any], text: bytes) -> tuple[list[list[int]], ...]:
    """The strides of one call, one list an input; none where nobody tells.

    Contiguous tensors and lists of tensors have an empty one, and dimensions of one have stride 0: calls
    that differ in nothing else are one.

    Args:
        shapes: One entry an input.
        text: The strides of the same as JSON.
    """
    if not text or not any(shapes):
        return ()
    try:
        steps = msgspec.json.decode(text)
    except FAULTS:
        return ()
    if not isinstance(steps, list) or len(shapes) != len(steps):
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
