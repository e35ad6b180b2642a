"""All GPUs of the host, read on a thread of their own: a driver that hangs holds nobody up."""

from __future__ import annotations

import threading
from typing import Any

from brrrtop.model.host import HostGpu
from collectors.gpu.nvidia.devices import NvmlDevice, list_devices
from collectors.gpu.nvidia.nvml import NvmlUnavailable, Questions, close_nvml, open_nvml
from collectors.gpu.nvidia.sampler import NvmlSampler

EVERY_S = 1.0


class GpuOverview:
    """The newest readings of every GPU, for as long as it is open."""

    def __init__(self) -> None:
        self._gpus: tuple[HostGpu, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._stop = threading.Event()
        self.ready = threading.Event()
        """Set once there are readings, or NVML turned out to be unavailable."""
        self._thread = threading.Thread(target=self._run, name="brrrtop-gpus", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def gpus(self) -> tuple[HostGpu, ...]:
        return self._gpus

    @property
    def notes(self) -> tuple[str, ...]:
        """Why GPUs are missing, as sentences."""
        return self._notes

    def close(self, wait_s: float = 1.0) -> None:
        self._stop.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        try:
            nvml = open_nvml()
        except NvmlUnavailable as why:
            self._notes = (f"{why.message}: {why.action}",)
            self.ready.set()
            return
        try:
            devices, self._notes = _boards(nvml)
            sampler = NvmlSampler(nvml, {one.index: one for one in devices})
            try:
                self._sample(nvml, devices, sampler)
            finally:
                sampler.close()
        finally:
            self.ready.set()
            close_nvml(nvml)

    def _sample(self, nvml: Any, devices: list[NvmlDevice], sampler: NvmlSampler) -> None:
        newest: dict[int, dict[int, float]] = {one.index: {} for one in devices}
        questions = Questions(nvml)
        while not self._stop.is_set():
            for rows in (sampler.fast(), sampler.sample()):
                for _, value, number, metric in rows.tolist():
                    newest[number][metric] = value
            self._gpus = tuple(
                HostGpu(one.index, one.name, dict(newest[one.index]), _memory(nvml, questions, one))
                for one in devices
            )
            self.ready.set()
            self._stop.wait(EVERY_S)


def _boards(nvml: Any) -> tuple[list[NvmlDevice], tuple[str, ...]]:
    devices, notes = list_devices(nvml)
    return [one for one in devices if not one.mig], tuple(notes)


def _memory(nvml: Any, questions: Questions, device: NvmlDevice) -> dict[int, int | None]:
    """What each compute process holds of a GPU."""
    listed = questions.ask(
        f"processes of {device.index}",
        lambda: nvml.nvmlDeviceGetComputeRunningProcesses(device.handle),
    )
    return {one.pid: one.usedGpuMemory for one in listed or ()}
