"""Stands in for CUPTI's PM sampling, where a test says which metrics fit and what comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tests.live.agents import SECOND

MS = 1_000_000
BEHIND_NS = 5_000 * SECOND
"""How far the fake GPU's clock is behind the host's."""


@dataclass
class OneSample:
    start_timestamp: int
    end_timestamp: int
    metric_values: list[float]


@dataclass
class Decoded:
    """As `cupti.pm_sampling.CounterData`: what is looked at is evaluated."""

    hardware: Hardware
    starts: range

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: slice) -> list[OneSample]:
        taken = self.starts[rows]
        self.hardware.evaluated += len(taken)
        length = self.starts.step
        return [OneSample(t, t + length, [50.0] * len(self.hardware.metrics)) for t in taken]


@dataclass
class Hardware:
    """Stands in for `cupti.pm_sampling`: fits `fits` metrics into a pass."""

    fits: int = 7
    decoded: int = 0
    evaluated: int = 0
    refuses: Exception | None = None
    silent: bool = False
    loses: float = 0.0
    """Share of the samples of each decode that never come, the oldest of it."""
    keeps_latest: bool = False
    calls: list[str] = field(default_factory=list)
    device_index: int | None = None
    mode: str | None = None

    def __post_init__(self) -> None:
        if self.keeps_latest:
            self.HardwareBufferAppendMode = SimpleNamespace(KEEP_LATEST="latest")

    def Collector(self, device_index: int) -> Hardware:
        self.device_index = device_index
        return self

    def enable(self) -> None:
        self.calls.append("enable")
        if self.refuses is not None:
            raise self.refuses

    def configure(
        self,
        *,
        metrics: list[str],
        sampling_interval: int,
        hw_buffer_append_mode: str | None = None,
        **_: Any,
    ) -> None:
        self.interval_ns = sampling_interval
        self.mode = hw_buffer_append_mode
        if len(metrics) > self.fits:
            raise ValueError("Requested PM sampling configuration is not supported.")
        self.metrics = metrics

    def start(self) -> None:
        self.calls.append("start")
        self.last_ns = time.time_ns() - BEHIND_NS

    def decode(self, max_samples: int) -> Decoded:
        self.calls.append("decode")
        now_ns = time.time_ns() - BEHIND_NS
        starts = range(self.last_ns, now_ns - self.interval_ns, self.interval_ns)
        starts = starts[: 0 if self.silent else max_samples]
        self.last_ns += len(starts) * self.interval_ns
        starts = starts[round(self.loses * len(starts)) :]
        self.decoded += len(starts)
        return Decoded(self, starts)

    def stop(self) -> None:
        self.calls.append("stop")

    def disable(self) -> None:
        self.calls.append("disable")


def until(done: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
