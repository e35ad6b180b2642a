"""Samples the GPU's hardware counters (CUPTI PM sampling) from the monitor's side. Opt-in.

One client a device: DCGM's profiling fields, nsys and ncu use the same hardware. It may hold the
GPU's clocks while it runs, which is why nobody gets it without asking. `cupti-python` is imported
here and never in the trainer.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.counter_clock import ClockMatch
from collectors.counter_faults import said
from collectors.counter_library import load_cupti
from collectors.cuda_devices import cuda_ordinals
from collectors.nvml_devices import bare_uuid
from collectors.wire import GAUGE, Frame, Kind, Metric

INTERVAL_NS = 1_000_000
BIN_NS = 100_000_000
"""Gauges are means over this long; the samples themselves stay here, see `samples`."""
DRAIN_S = 0.1
HARDWARE_BUFFER_BYTES = 64 << 20
SAMPLES_AT_ONCE = 512
"""About 18 KiB of counter image each."""
KEPT_SAMPLES = 60_000
_P = ".avg.pct_of_peak_sustained_elapsed"

COUNTERS: dict[str, str] = {
    "sm": "sm__cycles_active" + _P,
    "tensor": "sm__pipe_tensor_cycles_active" + _P,
    "dram": "dram__throughput" + _P,
    "dram_read": "dram__read_throughput" + _P,
    "dram_write": "dram__write_throughput" + _P,
    "gr": "gr__cycles_active" + _P,
    "warps": "sm__warps_active" + _P,
}
"""Column → metric, dearest last: dropped from the end until the rest fits into one pass. Together
they took one pass on an H200 with CUPTI 13.4."""

_GAUGES = {
    "sm": Metric.SM_ACTIVE,
    "tensor": Metric.TENSOR_ACTIVE,
    "dram": Metric.DRAM_ACTIVE,
    "gr": Metric.GRAPHICS_ACTIVE,
    "warps": Metric.SM_OCCUPANCY,
}

SAMPLE = np.dtype(
    [("start_ns", "<i8"), ("time_ns", "<i8"), ("device", "<i4")]
    + [(column, "<f4") for column in COUNTERS]
)
"""One interval of one device, on CLOCK_REALTIME; `time_ns` is its end. Shares 0..1, NaN: absent."""


class DeviceCounters:
    """PM sampling on one device.

    Args:
        sampling: The module `cupti.pm_sampling`.
        ordinal: CUDA's number of the device in this process.
    """

    def __init__(self, sampling: Any, ordinal: int, interval_ns: int = INTERVAL_NS) -> None:
        self._interval_ns = interval_ns
        self._collector = sampling.Collector(device_index=ordinal)
        self.columns: list[str] = []
        self._clock = ClockMatch()
        self._is_first = True
        self.lost_buffers = 0
        self._collector.enable()
        with contextlib.ExitStack() as undo:
            undo.callback(self._collector.disable)
            self._configure()
            self._collector.start()
            undo.pop_all()

    def _configure(self) -> None:
        columns = list(COUNTERS)
        while True:
            try:
                self._collector.configure(
                    metrics=[COUNTERS[column] for column in columns],
                    hardware_buffer_size=HARDWARE_BUFFER_BYTES,
                    sampling_interval=self._interval_ns,
                )
            except ValueError:
                if len(columns) == 1:
                    raise
                columns.pop()
                continue
            self.columns = columns
            return

    def drain(self, device: int) -> npt.NDArray[np.void]:
        """The intervals that ended since the call before, as `SAMPLE` rows of `device`."""
        try:
            decoded = self._collector.decode(max_samples=SAMPLES_AT_ONCE)
        except MemoryError:  # the hardware buffer ran over while nobody drained it
            self.lost_buffers += 1
            self._restart()
            return np.zeros(0, SAMPLE)
        now_ns = time.time_ns()
        taken = list(decoded)
        if taken and self._is_first:
            taken, self._is_first = taken[1:], False  # its time stamp is bogus (PyTorch's notes)
        rows = np.zeros(len(taken), SAMPLE)
        if not len(rows):
            return rows
        rows["device"] = device
        rows["start_ns"] = [one.start_timestamp for one in taken]
        rows["time_ns"] = [one.end_timestamp for one in taken]
        values = np.array([one.metric_values for one in taken], np.float64) / 100
        for column in COUNTERS:
            rows[column] = np.nan
        for at, column in enumerate(self.columns):
            rows[column] = values[:, at]
        offset_ns = self._clock.offset_ns(int(rows["time_ns"][-1]), now_ns)
        rows["start_ns"] += offset_ns
        rows["time_ns"] += offset_ns
        sane = rows["time_ns"] > rows["start_ns"]
        sane &= rows["time_ns"] - rows["start_ns"] < 100 * self._interval_ns
        return rows[sane]

    def _restart(self) -> None:
        self._collector.stop()
        self._collector.start()
        self._is_first = True

    def close(self) -> None:
        """Gives the counters back. A decode after the stop fails, so there is none."""
        try:
            self._collector.stop()
        finally:
            self._collector.disable()


class CounterThread:
    """Gauges at 10 Hz from counters of the trainer's devices, and the samples behind them.

    Starts sampling once `match` has said which devices those are.

    Args:
        pid: The trainer, for messages.
        sampling: The module `cupti.pm_sampling`; None: import it.
        ordinals: CUDA's numbers of this process by bare UUID; None: ask the driver.
    """

    carries = frozenset(_GAUGES.values())
    """Metrics that need no second source beside this one."""

    def __init__(
        self,
        pid: int | None = None,
        sampling: Any = None,
        ordinals: Callable[[], Mapping[str, int]] = cuda_ordinals,
        interval_ns: int = INTERVAL_NS,
    ) -> None:
        self._pid = pid
        self._sampling = sampling
        self._ordinals = ordinals
        self._interval_ns = interval_ns
        self._numbers: dict[str, int] = {}
        self._known = threading.Event()
        self._stop = threading.Event()
        self._held: deque[Frame] = deque(maxlen=4096)
        self._samples: deque[npt.NDArray[np.void]] = deque()
        self._lock = threading.Lock()
        self._says: list[str] = []
        self.active = False
        """Samples are coming."""
        self._thread = threading.Thread(target=self._run, name="brrrtop-counters", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def match(self, uuids: Mapping[int, str]) -> None:
        """Learns the trainer's devices by its own numbers."""
        self._numbers = {bare_uuid(uuid): number for number, uuid in uuids.items()}
        if any(uuid.startswith("MIG-") for uuid in uuids.values()):
            self._says = ["hardware counters cannot be sampled on a MIG device"]
        elif uuids:
            self._known.set()

    def drain(self) -> list[Frame]:
        """Frames of gauges since the call before; never waits."""
        frames = []
        while self._held:
            frames.append(self._held.popleft())
        return frames

    def samples(self) -> npt.NDArray[np.void]:
        """`SAMPLE` rows since the call before, the newest minute of them; never waits."""
        with self._lock:
            taken, self._samples = list(self._samples), deque()
        return np.concatenate(taken) if taken else np.zeros(0, SAMPLE)

    @property
    def says(self) -> list[str]:
        """Why there are no counters, or what they cost."""
        return list(self._says)

    def close(self, wait_s: float = 2.0) -> bool:
        """Stops sampling; False if the driver holds the thread beyond `wait_s`."""
        self._stop.set()
        self._known.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)
        return not self._thread.is_alive()

    # --- the thread -----------------------------------------------------------------

    def _run(self) -> None:
        self._known.wait()
        devices: dict[str, DeviceCounters] = {}
        try:
            if not self._stop.is_set():
                self._open(devices)
            while devices and not self._stop.wait(DRAIN_S):
                self._look(devices)
        except Exception as fault:  # noqa: BLE001 - any fault of CUPTI costs the counters only
            self._says = [said(fault)]
        finally:
            self.active = False
            self._close(devices)

    def _open(self, devices: dict[str, DeviceCounters]) -> None:
        sampling = self._sampling or _sampling_module()
        ordinals = self._ordinals()
        for uuid in self._numbers:
            if uuid not in ordinals:
                self._says = ["CUDA_VISIBLE_DEVICES hides the trainer's GPU from brrrtop"]
                continue
            devices[uuid] = DeviceCounters(sampling, ordinals[uuid], self._interval_ns)
        if devices:
            self.active = True
            self._says = ["hardware counters are on, which may hold the GPU's clocks"]

    def _look(self, devices: Mapping[str, DeviceCounters]) -> None:
        for uuid, device in devices.items():
            number = self._numbers.get(uuid)
            rows = device.drain(number if number is not None else 0)
            if number is None or not len(rows):
                continue
            self._keep(rows)
            gauges = binned(rows, device.columns)
            if len(gauges):
                self._held.append(Frame(Kind.GAUGES, gauges, time.time_ns()))

    def _keep(self, rows: npt.NDArray[np.void]) -> None:
        with self._lock:
            self._samples.append(rows)
            while sum(map(len, self._samples)) > KEPT_SAMPLES:
                self._samples.popleft()

    def _close(self, devices: Mapping[str, DeviceCounters]) -> None:
        for device in devices.values():
            try:
                device.close()
            except Exception as fault:  # noqa: BLE001 - leaving must not fail
                self._says = [said(fault)]


def _sampling_module() -> Any:
    load_cupti()
    return importlib.import_module("cupti.pm_sampling")


def binned(
    rows: npt.NDArray[np.void], columns: list[str], bin_ns: int = BIN_NS
) -> npt.NDArray[np.void]:
    """Means of `SAMPLE` rows over stretches of `bin_ns`, as `wire.GAUGE` rows."""
    found = []
    edges = np.unique(rows["time_ns"] // bin_ns)
    for edge in edges:
        part = rows[rows["time_ns"] // bin_ns == edge]
        weights = (part["time_ns"] - part["start_ns"]).astype(np.float64)
        for column in columns:
            metric = _GAUGES.get(column)
            values = part[column].astype(np.float64)
            good = np.isfinite(values)
            if metric is not None and good.any():
                mean = float(np.average(values[good], weights=weights[good]))
                at_ns = int(part["time_ns"][-1])
                found.append((at_ns, mean, int(part["device"][0]), int(metric)))
    return np.array(found, GAUGE)
