"""Orders to the agent as bytes. The other direction is `wire`.

One order is 24 bytes, little-endian: `u32 op | u32 flags | i64 a | i64 b`.
"""

from __future__ import annotations

import struct
from enum import IntEnum

CONTROL = struct.Struct("<IIqq")


class Op(IntEnum):
    """What the agent shall do."""

    BURST = 1
    """Trace `a` whole steps, for `b` ns at the longest; `a` 0: for `b` ns."""
    BURST_END = 2
    CONTINUOUS = 3
    """`a` 1: trace without pauses; 0: no longer."""
    DETACH = 4
    """Retract; flag bit 0: even while other monitors watch."""
    PING = 5
    """The monitor lives; an agent that hears none for 2 s retracts."""
    STACKS = 6
    """`a` 1: sample the main thread's stack while the GPU idles; 0: no longer."""
    KINDS = 7
    """`a`: bit set of what to trace."""


def encode_order(op: Op, a: int = 0, b: int = 0, flags: int = 0) -> bytes:
    """One order, ready to be sent."""
    return CONTROL.pack(op, flags, a, b)
