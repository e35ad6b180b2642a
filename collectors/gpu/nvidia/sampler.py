"""Turns what NVML says of the trainer's GPUs into gauges. Knows nothing of threads or the screen.

`fast` is GPM, due a few times a second; `sample` everything else, each at its own pace.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from brrrtop.model.vocabulary import Metric
from brrrtop.protocol.frames import GAUGE
from brrrtop.protocol.status import MPS
from collectors.gpu.nvidia import fields as fields
from collectors.gpu.nvidia.devices import NvmlDevice
from collectors.gpu.nvidia.fields import FieldReader, Rate
from collectors.gpu.nvidia.gpm import GpmSampler
from collectors.gpu.nvidia.nvml import Questions
from collectors.gpu.nvidia.processes import Tenants, tenants

Reading = tuple[Metric, float]

PROCESSES_EVERY_NS = 5_000_000_000
"""4.5 ms under the driver's lock with many processes (MangoHud PR 2104)."""
STEADY_EVERY_NS = 10_000_000_000
"""Limits, totals and error counts: said again so that any ten seconds of a recording hold them."""
MHZ = 1e6


class DeviceSampler:
    """The readings of one GPU."""

    def __init__(
        self,
        nvml: Any,
        device: NvmlDevice,
        trainer: int | None = None,
    ) -> None:
        self._nvml = nvml
        self._device = device
        self._trainer = trainer
        self._due_ns: dict[str, int] = {}
        self.questions = Questions(nvml)
        self.gpm = GpmSampler(nvml, device, self.questions)
        self.tenants: Tenants | None = None
        self._power = FieldReader(
            nvml, device, self.questions, "power", [fields.POWER_INSTANT_MILLIWATT]
        )
        self._steady = FieldReader(
            nvml, device, self.questions, "steady",
            [fields.MEMORY_TEMPERATURE, fields.POWER_LIMIT_MILLIWATT, fields.ECC_UNCORRECTED],
        )  # fmt: skip
        self._traffic = FieldReader(nvml, device, self.questions, "traffic", list(_TRAFFIC))
        self._rates = {field: Rate() for field in _TRAFFIC}
        self._sm_max_mhz = self._mhz_max()
        self._events = self._xid_events()

    def _mhz_max(self) -> int | None:
        board = self._device.board.handle
        return self.questions.ask(
            "clock max",
            lambda: int(self._nvml.nvmlDeviceGetMaxClockInfo(board, self._nvml.NVML_CLOCK_SM)),
        )

    def _xid_events(self) -> Any:
        nvml, board = self._nvml, self._device.board.handle
        events = self.questions.ask("xid set", nvml.nvmlEventSetCreate)
        if events is None:
            return None
        registered = self.questions.ask(
            "xid register",
            lambda: (
                nvml.nvmlDeviceRegisterEvents(board, nvml.nvmlEventTypeXidCriticalError, events)
                or True
            ),
        )
        if registered is None:
            nvml.nvmlEventSetFree(events)
            return None
        return events

    def _is_due(self, what: str, every_ns: int) -> bool:
        now_ns = time.monotonic_ns()
        if now_ns < self._due_ns.get(what, 0):
            return False
        self._due_ns[what] = now_ns + every_ns
        return True

    def fast(self) -> list[Reading]:
        """GPM's means since the call before."""
        return self.gpm.sample()

    def sample(self) -> list[Reading]:
        """Everything else that is due and answers."""
        readings = [
            *self._usage(),
            *self._board_state(),
            *self._links_now(),
            *self._xid(),
        ]
        if self._is_due("steady", STEADY_EVERY_NS):
            readings += self._steady_now()
        if self._is_due("processes", PROCESSES_EVERY_NS):
            readings += self._tenants_now()
        return readings

    def _usage(self) -> list[Reading]:
        nvml, handle = self._nvml, self._device.handle
        readings: list[Reading] = []
        if not self._device.mig:  # "not available" there: MIG User Guide, "nvidia-smi"
            rates = self.questions.ask("util", lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
            if rates is not None:
                readings.append((Metric.SMI_UTIL, rates.gpu / 100))
        memory = self.questions.ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        if memory is not None:
            readings.append((Metric.MEMORY_USED_BYTES, float(memory.used)))
            if self._is_due("memory total", STEADY_EVERY_NS):
                readings.append((Metric.MEMORY_TOTAL_BYTES, float(memory.total)))
        return readings

    def _board_state(self) -> list[Reading]:
        nvml, board, ask = self._nvml, self._device.board.handle, self.questions
        readings: list[Reading] = []
        power = self._power.values().get(fields.POWER_INSTANT_MILLIWATT)
        if power is None:  # a mean over a second on Ampere and newer, yet better than nothing
            power = ask.ask("power", lambda: nvml.nvmlDeviceGetPowerUsage(board))
        if power is not None:
            readings.append((Metric.POWER_WATT, power / 1000))
        heat = ask.ask(
            "heat",
            lambda: nvml.nvmlDeviceGetTemperature(board, nvml.NVML_TEMPERATURE_GPU),
        )
        if heat is not None:
            readings.append((Metric.TEMPERATURE_C, float(heat)))
        readings += self._clock("sm clock", nvml.NVML_CLOCK_SM, Metric.SM_CLOCK_HZ)
        readings += self._clock("memory clock", nvml.NVML_CLOCK_MEM, Metric.MEMORY_CLOCK_HZ)
        reasons = self._reasons()
        if reasons is not None:
            readings.append((Metric.CLOCK_EVENT_REASONS, float(reasons)))
        return readings

    def _clock(self, key: str, clock: int, metric: Metric) -> list[Reading]:
        nvml, board = self._nvml, self._device.board.handle
        mhz = self.questions.ask(key, lambda: nvml.nvmlDeviceGetClockInfo(board, clock))
        return [] if mhz is None else [(metric, mhz * MHZ)]

    def _reasons(self) -> int | None:
        nvml, board, ask = self._nvml, self._device.board.handle, self.questions
        if "reasons" not in ask.absent:
            return ask.ask("reasons", lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(board))
        return ask.ask("throttle", lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(board))

    def _links_now(self) -> list[Reading]:
        readings: list[Reading] = []
        if self._device.mig:
            return readings  # the counters are the whole board's
        carried = self.gpm.metrics
        spared = [field for field, (metric, _) in _TRAFFIC.items() if metric in carried]
        at_ns = time.monotonic_ns()
        for field, count in self._traffic.values(spared).items():
            metric, unit = _TRAFFIC[field]
            rate = self._rates[field].per_s(at_ns, count)
            if rate is not None:
                readings.append((metric, rate * unit))
        return readings

    def _steady_now(self) -> list[Reading]:
        readings: list[Reading] = []
        fields_now = self._steady.values()
        limit = fields_now.get(fields.POWER_LIMIT_MILLIWATT)
        if limit is None:
            board = self._device.board.handle
            limit = self.questions.ask(
                "limit", lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(board)
            )
        if limit is not None:
            readings.append((Metric.POWER_LIMIT_WATT, limit / 1000))
        if fields.MEMORY_TEMPERATURE in fields_now:
            readings.append((Metric.MEMORY_TEMPERATURE_C, fields_now[fields.MEMORY_TEMPERATURE]))
        if fields.ECC_UNCORRECTED in fields_now:
            readings.append((Metric.ECC_UNCORRECTED_COUNT, fields_now[fields.ECC_UNCORRECTED]))
        if self._sm_max_mhz is not None:
            readings.append((Metric.SM_CLOCK_MAX_HZ, self._sm_max_mhz * MHZ))
        return readings

    def _tenants_now(self) -> list[Reading]:
        handle = self._device.handle
        listed = self.questions.ask(
            "processes", lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        )
        if listed is None:
            self.tenants = None
            return []
        self.tenants = tenants([int(one.pid) for one in listed], self._trainer, [os.getpid()])
        count = self.tenants.foreign_count
        return [] if count is None else [(Metric.FOREIGN_PROCESS_COUNT, float(count))]

    def _xid(self) -> list[Reading]:
        if self._events is None or not self._is_due("xid", 1_000_000_000):
            return []
        nvml = self._nvml
        try:  # "nothing happened" is an error code here: not a question that failed
            event = nvml.nvmlEventSetWait_v2(self._events, 0)
        except nvml.NVMLError as fault:
            if getattr(fault, "value", None) not in (nvml.NVML_ERROR_TIMEOUT,):
                self._free_events()
            return []
        return [(Metric.XID, float(event.eventData))]

    def _free_events(self) -> None:
        if self._events is not None:
            self.questions.ask("xid free", lambda: self._nvml.nvmlEventSetFree(self._events))
            self._events = None

    @property
    def says(self) -> list[str]:
        """What a reader of these gauges must know."""
        lines = [
            self.questions.lost,
            self.gpm.says,
            self.tenants.says if self.tenants else None,
        ]
        if self._device.mig:
            lines.append(
                "a MIG device: power, clocks and temperature are those of the whole GPU, and "
                "nvidia-smi's utilisation does not exist"
            )
        return [line for line in lines if line]

    @property
    def facts(self) -> frozenset[str]:
        """The same for programs: what of `brrrtop.protocol.status` holds."""
        return frozenset({MPS} if self.tenants and self.tenants.mps else ())

    def close(self) -> None:
        """Frees what the driver holds for us."""
        self.gpm.close()
        self._free_events()


_TRAFFIC: dict[int, tuple[Metric, float]] = {
    fields.PCIE_TX_BYTES: (Metric.PCIE_TX_BYTES_PER_S, 1.0),
    fields.PCIE_RX_BYTES: (Metric.PCIE_RX_BYTES_PER_S, 1.0),
    fields.NVLINK_TX_KIB: (Metric.NVLINK_TX_BYTES_PER_S, 1024.0),
    fields.NVLINK_RX_KIB: (Metric.NVLINK_RX_BYTES_PER_S, 1024.0),
}


class NvmlSampler:
    """The gauges of all GPUs of one trainer."""

    def __init__(
        self, nvml: Any, devices: Mapping[int, NvmlDevice], trainer: int | None = None
    ) -> None:
        self._devices = {
            number: DeviceSampler(nvml, device, trainer) for number, device in devices.items()
        }

    def fast(self) -> npt.NDArray[np.void]:
        """GPM, as an array of `wire.GAUGE`."""
        return self._gather(DeviceSampler.fast)

    def sample(self) -> npt.NDArray[np.void]:
        """The rest, as an array of `wire.GAUGE`."""
        return self._gather(DeviceSampler.sample)

    def _gather(self, read: Callable[[DeviceSampler], list[Reading]]) -> npt.NDArray[np.void]:
        rows = []
        for number, device in self._devices.items():
            readings = read(device)
            at_ns = time.time_ns()
            rows += [(at_ns, value, number, int(metric)) for metric, value in readings]
        return np.array(rows, GAUGE)

    @property
    def has_gpm(self) -> bool:
        return any(device.gpm.supported for device in self._devices.values())

    @property
    def says(self) -> list[str]:
        """Caveats, each once, in the order of the devices."""
        return list(dict.fromkeys(line for one in self._devices.values() for line in one.says))

    @property
    def facts(self) -> frozenset[str]:
        """What holds of any of the devices."""
        return frozenset().union(*(one.facts for one in self._devices.values()))

    def close(self) -> None:
        for device in self._devices.values():
            device.close()
