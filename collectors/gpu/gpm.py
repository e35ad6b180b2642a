"""Reads GPM, the GPU's own activity counters (Hopper and newer), as gauges of one device.

GPM needs no privilege, no context and no performance-monitor hardware, so it coexists with nsys,
ncu and DCGM (NVIDIA/DCGM issue 62). A reading is the mean between two samples of the driver.
"""

from __future__ import annotations

import contextlib
import math
import time
from typing import Any

from collectors.gpu.devices import NvmlDevice
from collectors.gpu.feed import rounded_share
from collectors.gpu.nvml import Questions
from collectors.vocabulary import Metric

WINDOW_NS = 250_000_000
LEAST_WINDOW_NS = 100_000_000
"""Closer samples give NaN (measured on an H200; NVML API reference says the same of zeros)."""
_MIB = float(1 << 20)

METRICS: dict[int, tuple[Metric, float]] = {
    1: (Metric.GRAPHICS_ACTIVE, 0.01),
    2: (Metric.SM_ACTIVE, 0.01),
    3: (Metric.SM_OCCUPANCY, 0.01),
    4: (Metric.INTEGER_ACTIVE, 0.01),
    5: (Metric.TENSOR_ACTIVE, 0.01),
    10: (Metric.DRAM_ACTIVE, 0.01),
    11: (Metric.FP64_ACTIVE, 0.01),
    12: (Metric.FP32_ACTIVE, 0.01),
    13: (Metric.FP16_ACTIVE, 0.01),
    20: (Metric.PCIE_TX_BYTES_PER_S, _MIB),
    21: (Metric.PCIE_RX_BYTES_PER_S, _MIB),
    60: (Metric.NVLINK_RX_BYTES_PER_S, _MIB),
    61: (Metric.NVLINK_TX_BYTES_PER_S, _MIB),
}
"""`nvmlGpmMetricId_t` → our metric and its unit. Source: nvml.h, "GPM Metric Identifiers"."""


class GpmSampler:
    """Two driver samples of one device, taken in turns."""

    def __init__(self, nvml: Any, device: NvmlDevice, questions: Questions) -> None:
        self._nvml = nvml
        self._device = device
        self._ask = questions
        self._wanted = list(METRICS)
        self._previous: Any = None
        self._previous_ns = 0
        self._fresh: Any = None
        self.message: str | None = None
        """Why there are no readings; None while there are."""
        self.supported = self._open()

    def _open(self) -> bool:
        support = self._ask.get("nvmlGpmQueryDeviceSupport", self._device.board.handle)
        if support is None or not support.isSupportedDevice:
            self.message = "this GPU has no GPM counters (Hopper and newer have them)"
            return False
        if self._device.mig and self._device.gpu_instance is None:
            self.message = (
                "GPM needs the GPU instance of this MIG device, and NVML does not name it"
            )
            return False
        self._previous = self._ask.get("nvmlGpmSampleAlloc")
        self._fresh = self._ask.get("nvmlGpmSampleAlloc", key="gpm alloc 2")
        if self._previous is None or self._fresh is None:
            self.message = "the driver gives no room for GPM samples"
            self.close()
            return False
        return True

    @property
    def metrics(self) -> frozenset[Metric]:
        """What this device answers, as far as is known."""
        return frozenset(METRICS[one][0] for one in self._wanted) if self.supported else frozenset()

    def sample(self) -> list[tuple[Metric, float]]:
        """The means since the call before; empty for the first, a refused or a too early one."""
        if not self.supported:
            return []
        if self._previous_ns and time.monotonic_ns() - self._previous_ns < LEAST_WINDOW_NS:
            return []
        taken = self._ask.ask("gpm sample", self._take)
        if taken is None:
            self.message = self._ask.refused.get("gpm sample") or self._ask.absent.get("gpm sample")
            self._previous_ns = 0  # what is held is too old to be a neighbour
            return []
        self.message = None
        at_ns = time.monotonic_ns()
        before_ns, self._previous_ns = self._previous_ns, at_ns
        self._previous, self._fresh = self._fresh, self._previous
        if not before_ns:
            return []
        return self._ask.ask("gpm metrics", lambda: self._read(self._fresh, self._previous)) or []

    def _take(self) -> bool:
        if self._device.mig:
            self._nvml.nvmlGpmMigSampleGet(
                self._device.board.handle, self._device.gpu_instance, self._fresh
            )
        else:
            self._nvml.nvmlGpmSampleGet(self._device.handle, self._fresh)
        return True

    def _read(self, older: Any, newer: Any) -> list[tuple[Metric, float]]:
        get = self._nvml.c_nvmlGpmMetricsGet_t()
        get.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        get.numMetrics = len(self._wanted)
        get.sample1, get.sample2 = older, newer
        for slot, metric_id in enumerate(self._wanted):
            get.metrics[slot].metricId = metric_id
        self._nvml.nvmlGpmMetricsGet(get)
        readings: list[tuple[Metric, float]] = []
        unsupported: list[int] = []
        for slot, metric_id in enumerate(self._wanted):
            one = get.metrics[slot]
            if one.nvmlReturn == self._nvml.NVML_ERROR_NOT_SUPPORTED:
                unsupported.append(metric_id)
            elif one.nvmlReturn == 0 and math.isfinite(one.value):
                metric, unit = METRICS[metric_id]
                value = round(one.value) * unit if unit >= 1 else rounded_share(one.value * unit)
                readings.append((metric, value))
        self._wanted = [one for one in self._wanted if one not in unsupported]
        return readings

    def close(self) -> None:
        for sample in (self._previous, self._fresh):
            if sample is not None:
                with contextlib.suppress(self._nvml.NVMLError):
                    self._nvml.nvmlGpmSampleFree(sample)
        self._previous = self._fresh = None
        self.supported = False
