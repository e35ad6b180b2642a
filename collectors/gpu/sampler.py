"""Turns what NVML says of the trainer's GPUs into gauges. Knows nothing of threads or the screen.

`fast` is how active the GPU is, due a few times a second; `sample` everything else, each at its own pace.
"""

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.gpu import nvml as fields
from collectors.gpu.devices import GpmSampler, NvmlDevice, Tenants, tenants
from collectors.gpu.nvml import Fields, Questions, Rate, code_of
from collectors.protocol.frames import GAUGE, rounded_share, time_of_gauges
from collectors.vocabulary import MPS, Metric

Reading = tuple[Metric, float]
Answer = tuple[Metric, float | None]
"""None: there is none now."""

PROCESSES_EVERY_NS = 5_000_000_000
"""4.5 ms under the driver's lock with many processes (MangoHud PR 2104)."""
STEADY_EVERY_NS = 10_000_000_000
"""Limits, totals and error counts: said again so that any ten seconds of a recording hold them."""
MHZ = 1e6


_TRAFFIC: dict[int, tuple[Metric, float]] = {
    fields.PCIE_TX_BYTES: (Metric.PCIE_TX_BYTES_PER_S, 1.0),
    fields.PCIE_RX_BYTES: (Metric.PCIE_RX_BYTES_PER_S, 1.0),
    fields.NVLINK_TX_KIB: (Metric.NVLINK_TX_BYTES_PER_S, 1024.0),
    fields.NVLINK_RX_KIB: (Metric.NVLINK_RX_BYTES_PER_S, 1024.0),
}


_STEADY = {
    fields.MEMORY_TEMPERATURE: Metric.MEMORY_TEMPERATURE_C,
    fields.ECC_UNCORRECTED: Metric.ECC_UNCORRECTED_COUNT,
}


class DeviceSampler:
    def __init__(self, nvml: Any, device: NvmlDevice, trainer: int | None = None) -> None:
        self._nvml = nvml
        self._board = board = device.handle
        self._trainer = trainer
        self._due_ns: dict[str, int] = {}
        self.questions = ask = Questions(nvml)
        self.gpm = GpmSampler(nvml, device, ask)
        self.tenants: Tenants | None = None
        self._power = Fields(ask, board, "power", [fields.POWER_INSTANT_MILLIWATT])
        steady = (fields.POWER_LIMIT_MILLIWATT, *_STEADY)
        self._steady = Fields(ask, board, "steady", steady)
        self._traffic = Fields(ask, board, "traffic", _TRAFFIC)
        self._rates = {field: Rate() for field in _TRAFFIC}
        self._sm_max_mhz = ask.get("nvmlDeviceGetMaxClockInfo", board, nvml.NVML_CLOCK_SM)
        self._events = self._xid_events()

    def _xid_events(self) -> Any:
        nvml = self._nvml
        events = self.questions.get("nvmlEventSetCreate")
        if events is None:
            return None
        registered = self.questions.ask(
            "xid register",
            lambda: (
                nvml.nvmlDeviceRegisterEvents(
                    self._board, nvml.nvmlEventTypeXidCriticalError, events
                )
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
        return self.gpm.sample() if self.gpm.supported else self._utilisation()

    def sample(self) -> list[Reading]:
        readings = [*self._usage(), *self._board_state()]
        readings += [*self._links_now(), *self._xid()]
        if self._is_due("steady", STEADY_EVERY_NS):
            readings += self._steady_now()
        if self._is_due("processes", PROCESSES_EVERY_NS):
            readings += self._tenants_now()
        return [(metric, float(value)) for metric, value in readings if value is not None]

    def _utilisation(self) -> list[Reading]:
        rates = self.questions.get("nvmlDeviceGetUtilizationRates", self._board)
        return [] if rates is None else [(Metric.SMI_UTIL, rounded_share(rates.gpu / 100))]

    def _usage(self) -> list[Answer]:
        answers: list[Answer] = [*self._utilisation()] if self.gpm.supported else []
        memory = self.questions.get("nvmlDeviceGetMemoryInfo", self._board)
        if memory is not None:
            answers.append((Metric.MEMORY_USED_BYTES, memory.used))
            if self._is_due("memory total", STEADY_EVERY_NS):
                answers.append((Metric.MEMORY_TOTAL_BYTES, memory.total))
        return answers

    def _board_state(self) -> list[Answer]:
        nvml, board, get = self._nvml, self._board, self.questions.get
        clock = "nvmlDeviceGetClockInfo"
        power = self._power.values().get(fields.POWER_INSTANT_MILLIWATT)
        if power is None:  # a mean over a second on Ampere and newer, yet better than nothing
            power = get("nvmlDeviceGetPowerUsage", board)
        heat = get("nvmlDeviceGetTemperature", board, nvml.NVML_TEMPERATURE_GPU)
        sm_mhz = get(clock, board, nvml.NVML_CLOCK_SM, key="sm clock")
        memory_mhz = get(clock, board, nvml.NVML_CLOCK_MEM, key="memory clock")
        reasons = "nvmlDeviceGetCurrentClocksEventReasons"
        if reasons in self.questions.absent:
            reasons = "nvmlDeviceGetCurrentClocksThrottleReasons"
        return [
            (Metric.POWER_WATT, None if power is None else round(power / 250) / 4),
            (Metric.TEMPERATURE_C, heat),
            (Metric.SM_CLOCK_HZ, None if sm_mhz is None else sm_mhz * MHZ),
            (Metric.MEMORY_CLOCK_HZ, None if memory_mhz is None else memory_mhz * MHZ),
            (Metric.CLOCK_EVENT_REASONS, get(reasons, board)),
        ]

    def _links_now(self) -> list[Answer]:
        answers: list[Answer] = []
        carried = self.gpm.metrics
        spared = [field for field, (metric, _) in _TRAFFIC.items() if metric in carried]
        at_ns = time.monotonic_ns()
        for field, count in self._traffic.values(spared).items():
            metric, unit = _TRAFFIC[field]
            rate = self._rates[field].per_s(at_ns, count)
            answers.append((metric, None if rate is None else rate * unit))
        return answers

    def _steady_now(self) -> list[Answer]:
        values, sm_mhz = self._steady.values(), self._sm_max_mhz
        limit = values.get(fields.POWER_LIMIT_MILLIWATT)
        if limit is None:
            limit = self.questions.get("nvmlDeviceGetEnforcedPowerLimit", self._board)
        return [
            (Metric.POWER_LIMIT_WATT, None if limit is None else limit / 1000),
            *((metric, values.get(field)) for field, metric in _STEADY.items()),
            (Metric.SM_CLOCK_MAX_HZ, None if sm_mhz is None else sm_mhz * MHZ),
        ]

    def _tenants_now(self) -> list[Answer]:
        listed = self.questions.get("nvmlDeviceGetComputeRunningProcesses", self._board)
        if listed is None:
            self.tenants = None
            return []
        self.tenants = tenants([int(one.pid) for one in listed], self._trainer, [os.getpid()])
        return [(Metric.FOREIGN_PROCESS_COUNT, self.tenants.foreign_count)]

    def _xid(self) -> list[Answer]:
        if self._events is None or not self._is_due("xid", 1_000_000_000):
            return []
        nvml = self._nvml
        try:  # "nothing happened" is an error code here: not a question that failed
            event = nvml.nvmlEventSetWait_v2(self._events, 0)
        except nvml.NVMLError as fault:
            if code_of(fault) != nvml.NVML_ERROR_TIMEOUT:
                self._free_events()
            return []
        return [(Metric.XID, event.eventData)]

    def _free_events(self) -> None:
        if self._events is not None:
            self.questions.get("nvmlEventSetFree", self._events)
            self._events = None

    @property
    def remarks(self) -> list[str]:
        lines = [
            self.questions.lost,
            self.gpm.message,
            self.tenants.message if self.tenants else None,
        ]
        return [line for line in lines if line]

    @property
    def facts(self) -> frozenset[str]:
        return frozenset({MPS} if self.tenants and self.tenants.mps else ())

    def close(self) -> None:
        self.gpm.close()
        self._free_events()


class NvmlSampler:
    def __init__(
        self, nvml: Any, devices: Mapping[int, NvmlDevice], trainer: int | None = None
    ) -> None:
        self._devices = {
            number: DeviceSampler(nvml, device, trainer) for number, device in devices.items()
        }

    def fast(self) -> npt.NDArray[np.void]:
        return self._gather(DeviceSampler.fast)

    def sample(self) -> npt.NDArray[np.void]:
        return self._gather(DeviceSampler.sample)

    def _gather(self, read: Callable[[DeviceSampler], list[Reading]]) -> npt.NDArray[np.void]:
        rows = []
        for number, device in self._devices.items():
            readings = read(device)
            at_ns = time_of_gauges()
            rows += [(at_ns, value, number, int(metric)) for metric, value in readings]
        return np.array(rows, GAUGE)

    @property
    def has_gpm(self) -> bool:
        return any(device.gpm.supported for device in self._devices.values())

    @property
    def remarks(self) -> list[str]:
        return list(dict.fromkeys(line for one in self._devices.values() for line in one.remarks))

    @property
    def facts(self) -> frozenset[str]:
        return frozenset().union(*(device.facts for device in self._devices.values()))

    def close(self) -> None:
        for device in self._devices.values():
            device.close()
