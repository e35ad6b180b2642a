"""What one interval of a GPU's hardware counters looks like on the wire."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

COLUMNS = ("sm", "tensor", "dram", "dram_read", "dram_write", "gr", "warps", "issue")
"""Shares of peak 0..1 (`collectors.gpu.counters.device.COUNTERS`); NaN: not sampled."""

SAMPLE = np.dtype(
    [
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("offset_ns", "<i8"),
        ("device", "<i4"),
        ("flags", "<u4"),
        *((column, "<f4") for column in COLUMNS),
    ]
)
"""One interval of one device, 64 bytes, on the GPU's own clock. `offset_ns` is what reading it
showed of the distance to CLOCK_REALTIME: too large by the delay of the quickest reading so far
where it is not 0 (`collectors.gpu.counters.device`). `device` is the trainer's number."""


def on_host_clock(rows: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], ...]:
    """Starts and ends on CLOCK_REALTIME, some milliseconds late where the clocks are two."""
    return rows["start_ns"] + rows["offset_ns"], rows["end_ns"] + rows["offset_ns"]
