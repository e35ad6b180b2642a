"""Counter readings of a window as means and shares; absent readings stay absent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from brrrtop.model.tables import Window
from collectors.vocabulary import Metric

REASONS: Mapping[str, int] = {
    "gpu idle": 0x1,
    "application clocks": 0x2,
    "power cap": 0x4,
    "hardware slowdown": 0x8,
    "software thermal": 0x20,
    "hardware thermal": 0x40,
    "power brake": 0x80,
}
"""Bits of NVML's clocks-event reasons (docs.nvidia.com/deploy/nvml-api)."""


class Readings(Struct, frozen=True):
    """Means over the window by metric, and how often each clock reason was set."""

    means: Mapping[int, float]
    largest: Mapping[int, float]
    reason_shares: Mapping[str, float]
    """Share of the readings with each reason of `REASONS`; empty without any."""

    def mean(self, metric: Metric) -> float | None:
        """Mean reading of one metric; None when never read."""
        return self.means.get(int(metric))


def mean_reading(window: Window, metric: Metric) -> float | None:
    """Mean of a metric's readings of the window's device; None when never read."""
    gauges = window.gauges
    mine = (gauges.metrics == metric) & (gauges.device_ids == window.device.device_id)
    values = gauges.values[mine]
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def readings(window: Window) -> Readings:
    """Readings of the window's device and of the host."""
    gauges = window.gauges
    mine = np.isin(gauges.device_ids, (window.device.device_id, -1))
    means: dict[int, float] = {}
    largest: dict[int, float] = {}
    for metric in np.unique(gauges.metrics[mine]):
        values = gauges.values[mine & (gauges.metrics == metric)]
        values = values[np.isfinite(values)]
        if len(values):
            means[int(metric)] = float(values.mean())
            largest[int(metric)] = float(values.max())
    bits = gauges.values[mine & (gauges.metrics == Metric.CLOCK_EVENT_REASONS)].astype(np.int64)
    shares = (
        {name: float(((bits & bit) != 0).mean()) for name, bit in REASONS.items()}
        if len(bits)
        else {}
    )
    return Readings(means, largest, shares)
