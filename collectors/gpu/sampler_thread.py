"""Samples NVML beside the monitor's own work, so that a driver that hangs only stops the gauges."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from collectors.gpu import devices
from collectors.gpu.devices import (
    NvmlDevice,
    device_facts,
    list_devices,
    match_uuids,
    visible_to,
)
from collectors.gpu.feed import SamplerThread
from collectors.gpu.nvml import NvmlUnavailable, Questions, close_nvml, open_nvml
from collectors.gpu.sampler import NvmlSampler
from collectors.process import proc
from collectors.protocol.frames import Frame, Kind, time_of_gauges

FAST_EVERY_NS = devices.WINDOW_NS
SLOW_EVERY_NS = 1_000_000_000
SILENT_AFTER_NS = 5_000_000_000


class GaugeThread(SamplerThread):
    """Frames of gauges and device facts, ready to be drained. NVML is open for as long as the thread runs.

    Args:
        pid: The trainer; its environment and its CUDA contexts say which GPUs matter.
    """

    def __init__(self, pid: int | None = None) -> None:
        super().__init__("brrrtop-nvml")
        self.unavailable: NvmlUnavailable | None = None
        """Why there is no NVML at all."""
        self.ready = threading.Event()
        """Set once NVML has answered, or turned out to be unavailable."""
        self._pid = pid
        self._uuids: dict[int, str] = {}
        self._rematch = threading.Event()
        self._alive_ns = time.monotonic_ns()
        self._remarks: list[str] = []
        self.facts: frozenset[str] = frozenset()
        """What `says` says, for programs: what of `collectors.vocabulary` holds."""
        self.has_gpm: bool | None = None

    def match(self, uuids: Mapping[int, str]) -> None:
        """Learns the trainer's own numbering; gauges follow it from the next reading on."""
        new = {number: uuid for number, uuid in uuids.items() if uuid}
        if new and new.items() - self._uuids.items():
            self._uuids.update(new)
            self._rematch.set()

    @property
    def remarks(self) -> list[str]:
        if (why := self.unavailable) is not None:
            return [f"{why.message}: {why.action}"]
        silent_ns = time.monotonic_ns() - self._alive_ns
        if self._thread.is_alive() and silent_ns > SILENT_AFTER_NS:
            return [
                f"the NVIDIA driver has not answered for {silent_ns // 10**9} s",
                *self._remarks,
            ]
        return list(self._remarks)

    def _run(self) -> None:
        try:
            nvml = open_nvml()
        except NvmlUnavailable as why:
            self.unavailable = why
            self.ready.set()
            return
        try:
            self._sample_until_stopped(nvml)
        finally:
            self.ready.set()
            close_nvml(nvml)

    def _sample_until_stopped(self, nvml: Any) -> None:
        devices, notes = list_devices(nvml)
        while not self._stop.is_set():
            self._rematch.clear()
            chosen, caveat = self._choose(nvml, devices)
            fixed = [*notes, *([caveat] if caveat else [])]
            if not devices:
                fixed.append("NVML sees no GPU it may read")
            for number, device in chosen.items():
                self._put(Kind.DEVICE, device_facts(nvml, device, number))
            sampler = NvmlSampler(nvml, chosen, self._pid)
            self.has_gpm = sampler.has_gpm
            self._remarks = fixed
            self.ready.set()
            try:
                self._sample(sampler, fixed)
            finally:
                sampler.close()

    def _sample(self, sampler: NvmlSampler, fixed: list[str]) -> None:
        slow_due_ns = 0
        while not (self._stop.is_set() or self._rematch.is_set()):
            began_ns = time.monotonic_ns()
            gauges = [sampler.fast()]
            if began_ns >= slow_due_ns:
                gauges.append(sampler.sample())
                slow_due_ns = began_ns + SLOW_EVERY_NS - FAST_EVERY_NS // 2
            for rows in gauges:
                if len(rows):
                    self._put(Kind.GAUGES, rows)
            self._remarks, self.facts = [*fixed, *sampler.remarks], sampler.facts
            self._alive_ns = time.monotonic_ns()
            left_ns = FAST_EVERY_NS - (self._alive_ns - began_ns)
            self._stop.wait(max(left_ns, FAST_EVERY_NS // 5) / 1e9)

    def _put(self, kind: Kind, body: Any) -> None:
        self._frames.append(Frame(kind, body, time_of_gauges()))

    def _choose(
        self, nvml: Any, devices: list[NvmlDevice]
    ) -> tuple[dict[int, NvmlDevice], str | None]:
        environment: dict[str, str] = {}
        if self._pid is not None:
            with suppress(OSError):
                environment = proc.environ(self._pid)
        visible, caveat = visible_to(devices, environment)
        known = match_uuids(devices, self._uuids)
        if known:
            return known, None
        used = {
            number: device
            for number, device in visible.items()
            if self._pid is not None and _computes_on(nvml, device, self._pid)
        }
        return used or visible, caveat


def _computes_on(nvml: Any, device: NvmlDevice, pid: int) -> bool:
    listed = Questions(nvml).get("nvmlDeviceGetComputeRunningProcesses", device.handle)
    return pid in {int(process.pid) for process in listed or ()}
