"""The gauges of a snapshot by name. The numbers are those of the wire's `Metric`."""

from __future__ import annotations

from enum import IntEnum


class Gauge(IntEnum):
    SMI_UTIL = 1
    MEMORY_USED_BYTES = 2
    MEMORY_TOTAL_BYTES = 3
    POWER_WATT = 4
    POWER_LIMIT_WATT = 5
    TEMPERATURE_C = 6
    SM_CLOCK_HZ = 7
    SM_CLOCK_MAX_HZ = 8
    CLOCK_EVENT_REASONS = 10
    PCIE_TX_BYTES_PER_S = 11
    PCIE_RX_BYTES_PER_S = 12
    FOREIGN_PROCESS_COUNT = 16
    SM_ACTIVE = 20
    SM_OCCUPANCY = 21
    TENSOR_ACTIVE = 22
    DRAM_ACTIVE = 23
    TRAINER_CPU_SHARE = 40


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
    """The gravest reason for low clocks in words; `none` when there is none, None when unmeasured."""
    if reasons is None:
        return None
    mask = int(reasons)
    for bit, words in THROTTLES:
        if mask & bit:
            return words
    return "none"
