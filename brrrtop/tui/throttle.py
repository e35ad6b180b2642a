"""What a gauge's bits mean in words."""

from __future__ import annotations

THROTTLES = (
    (0x08, "hardware slowdown"),
    (0x40, "thermal, hardware"),
    (0x80, "power brake"),
    (0x20, "thermal, software"),
    (0x04, "power cap"),
    (0x02, "clocks set by a user"),
)
"""Bits of NVML's clocks-event reasons that hold clocks down, gravest first (nvml.h,
nvmlClocksEventReasons). Idle (0x1), sync boost (0x10) and display (0x100) are left out."""


def throttle(reasons: float | None) -> str | None:
    """The gravest reason for low clocks; `none` when there is none, None when unmeasured."""
    if reasons is None:
        return None
    mask = int(reasons)
    for bit, words in THROTTLES:
        if mask & bit:
            return words
    return "none"
