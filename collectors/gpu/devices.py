"""Says which GPUs there are, and which of them a trainer calls `cuda:0`, `cuda:1`, …

CUDA numbers devices after `CUDA_VISIBLE_DEVICES`; NVML numbers them by PCI address and does not
look at it. The UUIDs that torch reports settle the matter as soon as the agent has sent them.

Counts who else computes on a GPU, from the process list of NVML and /proc. Reads GPM, the activity
counters of Hopper and newer: it needs no privilege, no context and no performance-monitor hardware,
so it coexists with nsys, ncu and DCGM (NVIDIA/DCGM issue 62). A reading is the mean between two
samples of the driver.
"""

import contextlib
import ctypes
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.gpu.nvml import Questions
from collectors.process import proc
from collectors.protocol.frames import rounded_share
from collectors.vocabulary import Metric

# CUDA C++ Programming Guide, "Compute Capabilities", FP32 units of an SM.
_CORES_PER_SM = {(7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, (6, 0): 64}
_CORES_PER_SM_SINCE_8_6 = 128


@dataclass(frozen=True, slots=True)
class NvmlDevice:
    index: int
    """NVML's number."""
    handle: Any
    uuid: str
    name: str
    sliced: bool = False
    """It is cut into MIG devices: what a trainer uses is one of those, which nothing here reads."""


def list_devices(nvml: Any) -> tuple[list[NvmlDevice], list[str]]:
    """Every GPU in NVML's order, and what could not be read."""
    questions = Questions(nvml)
    count = questions.get("nvmlDeviceGetCount") or 0
    devices: list[NvmlDevice] = []
    notes: list[str] = []
    for index in range(count):
        one = Questions(nvml)
        board = _board(one, index)
        if board is None:
            why = one.lost or next(iter((one.refused | one.absent).values()), "no answer")
            notes.append(f"GPU {index} cannot be read: {why}")
            continue
        devices.append(board)
    return devices, notes


def _board(ask: Questions, index: int) -> NvmlDevice | None:
    handle = ask.get("nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return None
    uuid, name = ask.get("nvmlDeviceGetUUID", handle), ask.get("nvmlDeviceGetName", handle)
    if ask.lost is not None:
        return None
    mode = ask.get("nvmlDeviceGetMigMode", handle)
    return NvmlDevice(index, handle, uuid or "", name or "", bool(mode and mode[0] == 1))


def bare_uuid(uuid: str) -> str:
    """The hexadecimal part: torch leaves off the `GPU-` that NVML puts in front."""
    return uuid.removeprefix("GPU-").lower()


def visible_to(
    devices: Sequence[NvmlDevice], environment: Mapping[str, str]
) -> tuple[dict[int, NvmlDevice], str | None]:
    """Which devices a process with that environment sees.

    Returns:
        Devices by CUDA's number, and a caveat or None.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; for MIG, NVIDIA MIG User
    Guide, "CUDA Visible Devices": a process enumerates one MIG device only.
    """
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    chosen = list(devices)
    if wanted is not None:
        chosen = []
        for item in wanted.split(","):
            one = _device_by_name(devices, item.strip())
            if one is None:
                break  # CUDA stops reading at the first name it does not know
            chosen.append(one)
    if any(device.sliced for device in chosen) or (wanted or "").startswith("MIG-"):
        return {}, "a MIG device: no counters of it"
    caveat = None
    by_number = wanted is None or not any(c.isalpha() for c in wanted)
    mixed = len({device.name for device in devices}) > 1
    if by_number and mixed and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        caveat = (
            "GPUs of different models: CUDA numbers them by speed, NVML by PCI address; the "
            "match is a guess until the trainer's UUIDs are known (CUDA_DEVICE_ORDER=PCI_BUS_ID)"
        )
    if devices and not chosen:
        caveat = (
            f"CUDA_VISIBLE_DEVICES={(wanted or '')[:60]!r} names no GPU that NVML shows here: "
            "no counters of it"
        )
    return dict(enumerate(chosen)), caveat


def _device_by_name(devices: Sequence[NvmlDevice], name: str) -> NvmlDevice | None:
    if name.isdigit():
        return devices[int(name)] if int(name) < len(devices) else None
    if name.startswith("GPU-"):
        matches = [device for device in devices if device.uuid.lower().startswith(name.lower())]
        return matches[0] if len(matches) == 1 else None
    return None


def match_uuids(devices: Sequence[NvmlDevice], uuids: Mapping[int, str]) -> dict[int, NvmlDevice]:
    known = {bare_uuid(device.uuid): device for device in devices}
    by_number = {number: known.get(bare_uuid(uuid)) for number, uuid in uuids.items()}
    return {number: device for number, device in by_number.items() if device is not None}


def device_facts(nvml: Any, device: NvmlDevice, number: int) -> dict[str, Any]:
    """What NVML knows of a GPU for good, by the field names of `brrrtop.model.Device`.

    Some of these calls take milliseconds: ask once.
    """
    ask, board = Questions(nvml), device.handle
    memory = ask.get("nvmlDeviceGetMemoryInfo", board)
    capability = ask.get("nvmlDeviceGetCudaComputeCapability", board)
    facts: dict[str, Any] = {
        "device_id": number,
        "name": device.name or None,
        "uuid": device.uuid or None,
        "memory_bytes": None if memory is None else memory.total,
        "capability": list(capability) if capability else None,
        "sm_count": _sm_count(ask, device, capability),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _sm_count(ask: Questions, device: NvmlDevice, capability: tuple[int, int] | None) -> int | None:
    cores = ask.get("nvmlDeviceGetNumGpuCores", device.handle)
    if not cores or capability is None:
        return None
    major, minor = capability
    since = _CORES_PER_SM_SINCE_8_6 if (major, minor) >= (8, 6) else None
    a_sm = _CORES_PER_SM.get((major, minor)) or since
    return int(cores) // a_sm if a_sm else None


class NoDriver(Exception):
    """There is no CUDA driver to ask."""


def cuda_ordinals() -> dict[str, int]:
    """CUDA's device numbers in this very process by UUID, without the `GPU-` in front.
    Makes no context.

    Raises:
        NoDriver: libcuda is missing or does not start.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as fault:
        raise NoDriver(f"libcuda.so.1 cannot be loaded: {fault}") from fault
    code = cuda.cuInit(0)
    if code != 0:
        raise NoDriver(f"libcuda.so.1 does not start: cuInit answers {code}")
    count = ctypes.c_int(0)
    cuda.cuDeviceGetCount(ctypes.byref(count))
    name_of = getattr(cuda, "cuDeviceGetUuid_v2", None) or cuda.cuDeviceGetUuid
    ordinals: dict[str, int] = {}
    for ordinal in range(count.value):
        device = ctypes.c_int(0)
        raw = (ctypes.c_ubyte * 16)()
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or name_of(ctypes.byref(raw), device):
            continue
        ordinals[_uuid_text(bytes(raw))] = ordinal
    return ordinals


def _uuid_text(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


OURS: set[int] = set()
"""Processes that the monitor started for itself: on the GPU, and nobody's neighbours."""


@dataclass(frozen=True, slots=True)
class Tenants:
    foreign_count: int | None
    """Compute processes besides the trainer and its children; None: cannot be told apart."""
    message: str | None = None
    mps: bool = False
    """The GPU is shared through MPS."""


def tenants(pids: Iterable[int], trainer: int | None, own: Iterable[int] = ()) -> Tenants:
    """Who is who among the compute processes of a device.

    Inside a container NVML may name processes by the pids of the host (older drivers do). That
    shows in pids that our /proc does not have; the pids that it has may then be others by accident.

    Args:
        pids: As NVML lists them.
        trainer: Its pid as we see it.
        own: Pids that are ours, never foreign, beside `OURS`.
    """
    listed = set(pids) - set(own) - OURS
    if trainer is None:
        return Tenants(len(listed), *_mps(listed))
    others = listed - {trainer}
    if trainer not in listed and not all(Path(f"/proc/{pid}").exists() for pid in others):
        message = (
            f"{len(others)} compute processes on this GPU, named by the pids of another pid "
            "namespace: who they are cannot be told from in here"
        )
        return Tenants(None, message)
    foreign = {pid for pid in others if trainer not in ancestors(pid)}
    return Tenants(len(foreign), *_mps(listed))


def _mps(pids: Iterable[int]) -> tuple[str | None, bool]:
    if any(proc.name_of(pid) == "nvidia-cuda-mps" for pid in pids):
        message = (
            "this GPU is shared through MPS: its counters are those of all clients together, "
            "not of this trainer"
        )
        return message, True
    return None, False


def ancestors(pid: int) -> list[int]:
    pids: list[int] = []
    while (parent := int(proc.status(pid).get("PPid", 0))) > 1 and parent not in pids:
        pids.append(parent)
        pid = parent
    return pids


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
        support = self._ask.get("nvmlGpmQueryDeviceSupport", self._device.handle)
        if support is None or not support.isSupportedDevice:
            self.message = "this GPU has no GPM counters (Hopper and newer have them)"
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
        return (
            frozenset(METRICS[metric][0] for metric in self._wanted)
            if self.supported
            else frozenset()
        )

    def sample(self) -> list[tuple[Metric, float]]:
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
        self._wanted = [metric for metric in self._wanted if metric not in unsupported]
        return readings

    def close(self) -> None:
        for sample in (self._previous, self._fresh):
            if sample is not None:
                with contextlib.suppress(self._nvml.NVMLError):
                    self._nvml.nvmlGpmSampleFree(sample)
        self._previous = self._fresh = None
        self.supported = False
