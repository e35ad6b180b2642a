"""Microseconds as traces write them → integer nanoseconds, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from brrrtop.model.tables import F8, I8, Bool

EXACT_BELOW_US = 2.0**43
"""Doubles below this are less than 0.49 ns off: the nearest nanosecond is the written one. Traces
with a base time stay below it, since the base is moved every three months."""
_LARGEST_US = 9.0e15
BAD = np.iinfo(np.int64).min
"""Stands for a time that is no time; `plausible` in kineto_columns drops it."""


def from_us(values_us: F8) -> I8:
    """Exact for whole microseconds below 2**53, and for three decimals below `EXACT_BELOW_US`."""
    good = np.abs(values_us) < _LARGEST_US
    safe = np.where(good, values_us, 0.0)
    whole = np.floor(safe)
    ns = whole.astype(np.int64) * 1000 + np.rint((safe - whole) * 1000.0).astype(np.int64)
    return np.where(good, ns, BAD)


def needs_text(values_us: F8) -> bool:
    """Did a double lose nanoseconds that the text of the trace has?"""
    large: Bool = np.abs(values_us) >= EXACT_BELOW_US
    return bool(np.any(large & (values_us != np.floor(values_us))))


def from_text(texts: Sequence[Any]) -> I8:
    """Exact for any decimal; `texts` are bytes-like numbers in microseconds.

    The common shape, digits with up to nine decimals, is read a digit of all rows at a time.
    """
    rows = np.array([bytes(text) for text in texts], dtype=np.bytes_)
    if not len(rows):
        return np.zeros(0, np.int64)
    width = rows.dtype.itemsize
    digits = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), width).T
    ns = np.zeros(len(rows), np.int64)
    decimals = np.full(len(rows), -1, np.int64)
    round_up = np.zeros(len(rows), bool)
    odd = np.zeros(len(rows), bool)
    for column in digits:
        is_digit = (column >= 48) & (column <= 57)
        is_point = column == 46
        odd |= ~(is_digit | is_point | (column == 0)) | (is_point & (decimals >= 0))
        decimals[is_point] = 0
        round_up |= is_digit & (decimals == 3) & (column >= 53)
        taken = is_digit & (decimals < 3)
        ns[taken] = ns[taken] * 10 + (column[taken] - 48)
        decimals[is_digit & (decimals >= 0)] += 1
    length = width - np.sum(digits == 0, axis=0)
    odd |= (length > 22) | (length == 0)
    scale: I8 = np.power(10, np.clip(3 - np.maximum(decimals, 0), 0, 3))
    ns = ns * scale + round_up
    for row in np.flatnonzero(odd | (ns < 0)):
        ns[row] = _one(bytes(rows[row]))
    return ns


def _one(text: bytes) -> int:
    try:
        value = Decimal(text.decode("ascii", "replace"))
        if not value.is_finite() or value.adjusted() > 15:
            return int(BAD)
        return int((value * 1000).to_integral_value())
    except (InvalidOperation, ValueError):
        return int(BAD)
