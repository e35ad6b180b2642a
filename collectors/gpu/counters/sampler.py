"""Samples the GPU's hardware counters (CUPTI PM sampling) from the monitor's side. Opt-in.

One client a device: DCGM's profiling fields, nsys and ncu use the same hardware. It may hold the
GPU's clocks while it runs, which is why nobody gets it without asking. `cupti-python` is imported
here and never in the trainer.

Evaluating a sample costs the monitor about 19 us, so most are not. While a burst is expected or
under way all are, and those of spans that were traced go out; otherwise enough for the gauges.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.gpu.counters.cupti_python import sampling_module, sentence
from collectors.gpu.counters.device import INTERVAL_NS, DeviceCounters
from collectors.gpu.devices import bare_uuid, cuda_ordinals
from collectors.gpu.feed import SamplerThread
from collectors.protocol.frames import GAUGE, Frame, Kind, on_host_clock
from collectors.vocabulary import Metric

BIN_NS = 100_000_000
"""Gauges are means over this long."""
SPARSE_NS = 1_000_000
"""One sample of so long a time is evaluated where nobody traces kernels: 2 % of a core."""
DRAIN_S, DRAIN_MOST_S = 0.2, 0.6
WORK_SHARE = 0.1
"""Of one core at most: where reading takes longer, it is done more seldom."""
WAITS_S = 5.0
"""Without a word of the trainer's devices for longer, `says` tells so."""
LEAST_IN_BIN = 50
"""Samples of a gauge's reading, of 100 and more where none are lost: it is taken for all of its time."""
SILENT_S = 3.0
"""Without a sample for so long, other gauges are better than none (H200, CUPTI 13.4: of two watches one
had none at all and the other none after its first burst, and neither said why)."""
_SILENT = (
    "hardware counters are on, but CUPTI delivers no samples: start brrrtop again to try anew, or "
    "leave --counters out"
)
_ON = (
    "hardware counters are on, every {:g} us beside traced kernels, which may hold the GPU's clocks"
)
_GAUGES = {
    "sm": Metric.SM_ACTIVE,
    "tensor": Metric.TENSOR_ACTIVE,
    "dram": Metric.DRAM_ACTIVE,
    "gr": Metric.GRAPHICS_ACTIVE,
    "warps": Metric.SM_OCCUPANCY,
}


class CounterThread(SamplerThread):
    """Gauges at 10 Hz from counters of the trainer's devices, and the samples of its bursts.

    Starts sampling once `match` has said which devices those are.

    Args:
        sampling: The module `cupti.pm_sampling`; None: import it.
        ordinals: CUDA's numbers of this process by bare UUID; None: ask the driver.
    """

    carries = frozenset(_GAUGES.values())
    """Metrics that need no second source beside this one."""

    def __init__(
        self,
        sampling: Any = None,
        ordinals: Callable[[], Mapping[str, int]] = cuda_ordinals,
        interval_ns: int = INTERVAL_NS,
    ) -> None:
        super().__init__("brrrtop-counters")
        self._sampling = sampling
        self._ordinals = ordinals
        self._interval_ns = interval_ns
        self._numbers: dict[str, int] = {}
        self._began_s = time.monotonic()
        self._known = threading.Event()
        self._rest: dict[str, npt.NDArray[np.void]] = {}
        self._bursts = Bursts(time.time_ns())
        self._lock = threading.Lock()
        """Of `_bursts`."""
        self._remarks: list[str] = []
        self._active = False
        self._comes = False
        self._gauged_s = 0.0
        self._settled = threading.Event()
        self._fresh_s = 0.0
        self._opened_s = 0.0
        self._unheard: set[str] = set()
        """Devices that have brought no sample yet."""

    def match(self, uuids: Mapping[int, str]) -> None:
        self._numbers = {bare_uuid(uuid): number for number, uuid in uuids.items()}
        if any(uuid.startswith("MIG-") for uuid in uuids.values()):
            self._remarks = ["hardware counters cannot be sampled on a MIG device"]
            self._settled.set()
        elif uuids:
            self._known.set()

    def expect(self, until_ns: int | None) -> None:
        with self._lock:
            self._bursts.expect(until_ns, time.time_ns())

    def traced(self, spans: npt.NDArray[np.void]) -> None:
        with self._lock:
            self._bursts.traced(spans, time.time_ns())

    @property
    def remarks(self) -> list[str]:
        waits = not self._remarks and not self._known.is_set() and not self._stop.is_set()
        if waits and time.monotonic() - self._began_s > WAITS_S:
            return ["hardware counters wait: nobody said yet which GPU the trainer uses"]
        return list(self._remarks)

    @property
    def active(self) -> bool:
        return self._active

    @property
    def settling(self) -> bool:
        """Sampling is being switched on: a bad moment to begin tracing, which then held the trainer
        for 102 to 176 ms instead of 10 (H200, driver 580).

        Until the first samples are here: started is not enough, the first reading takes CUPTI up to
        370 ms, and bursts that began within it were held as long as those before.
        """
        return not self._settled.is_set()

    def close(self, wait_s: float = 2.0) -> bool:
        self._stop.set()
        self._known.set()
        return super().close(wait_s)

    # --- the thread -----------------------------------------------------------------

    def _run(self) -> None:
        self._known.wait()
        devices: dict[str, DeviceCounters] = {}
        try:
            if not self._stop.is_set():
                self._open(devices)
            if not devices:
                self._settled.set()
            pause_s = DRAIN_S
            while devices and not self._stop.wait(pause_s):
                began_s = time.monotonic()
                self._sample_due(devices)
                worked_s = time.monotonic() - began_s
                pause_s = min(DRAIN_MOST_S, max(DRAIN_S, worked_s / WORK_SHARE))
        except Exception as fault:  # noqa: BLE001 - any fault of CUPTI costs the counters only
            self._remarks = [sentence(fault)]
        finally:
            self._active = False
            self._settled.set()
            self._close(devices)

    def _open(self, devices: dict[str, DeviceCounters]) -> None:
        sampling = self._sampling or sampling_module()
        ordinals = self._ordinals()
        for uuid in self._numbers:
            if uuid not in ordinals:
                self._remarks = ["CUDA_VISIBLE_DEVICES hides the trainer's GPU from brrrtop"]
                continue
            devices[uuid] = DeviceCounters(sampling, ordinals[uuid], self._interval_ns)
        self._unheard = set(devices)
        self._opened_s = time.monotonic()

    def _hear(self, came: bool) -> None:
        """Says whether samples come, when that is new."""
        now_s = time.monotonic()
        if came:
            self._fresh_s = now_s
            self._gauged_s = self._gauged_s or now_s
        silent = now_s - max(self._fresh_s, self._opened_s) >= SILENT_S
        if silent:
            self._remarks = [_SILENT]
        elif self._fresh_s and not self._comes:
            self._remarks = [_ON.format(self._interval_ns / 1000)]
        self._comes = bool(self._fresh_s) and not silent
        self._active = self._comes and now_s - self._gauged_s < SILENT_S
        if silent or not self._unheard:
            self._settled.set()

    def _sample_due(self, devices: Mapping[str, DeviceCounters]) -> None:
        with self._lock:
            dense = self._bursts.wanted(time.time_ns())
        every = 1 if dense else max(1, SPARSE_NS // self._interval_ns)
        came = False
        for uuid, device in devices.items():
            number = self._numbers.get(uuid)
            rows = device.drain(number if number is not None else 0, every)
            if len(rows):
                came = True
                self._unheard.discard(uuid)
            if number is None or not len(rows):
                continue
            gauges = bin_means(self._whole_bins(uuid, rows), device.columns, least=LEAST_IN_BIN)
            if len(gauges):
                self._gauged_s = time.monotonic()
                self._frames.append(Frame(Kind.GAUGES, gauges, time.time_ns()))
            if dense:
                with self._lock:
                    self._bursts.keep(rows)
        self._hear(came)
        with self._lock:
            due = self._bursts.due(time.time_ns())
        self._frames.extend(Frame(Kind.SAMPLES, rows, time.time_ns()) for rows in due)

    def _whole_bins(self, uuid: str, rows: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Rows up to the last bin that is over; the rest waits for more."""
        if uuid in self._rest:
            rows = np.concatenate((self._rest[uuid], rows))
        bins = on_host_clock(rows)[1] // BIN_NS
        self._rest[uuid] = rows[bins == bins[-1]]
        whole: npt.NDArray[np.void] = rows[bins < bins[-1]]
        return whole

    def _close(self, devices: Mapping[str, DeviceCounters]) -> None:
        for device in devices.values():
            try:
                device.close()
            except Exception as fault:  # noqa: BLE001 - leaving must not fail
                self._remarks = [sentence(fault)]


def bin_means(
    rows: npt.NDArray[np.void], columns: list[str], bin_ns: int = BIN_NS, least: int = 1
) -> npt.NDArray[np.void]:
    """Means of `SAMPLE` rows over stretches of `bin_ns`, as `wire.GAUGE` rows on the host's clock.

    A stretch with fewer than `least` rows has no reading: what was lost is neither idle nor zero.
    """
    result = []
    _, ends = on_host_clock(rows)
    bins = ends // bin_ns
    for edge in np.unique(bins):
        part = rows[bins == edge]
        if len(part) < least:
            continue
        weights = (part["end_ns"] - part["start_ns"]).astype(np.float64)
        at_ns = int(ends[bins == edge][-1])
        for column in columns:
            metric = _GAUGES.get(column)
            values = part[column].astype(np.float64)
            good = np.isfinite(values)
            if metric is not None and good.any():
                mean = float(np.average(values[good], weights=weights[good]))
                result.append((at_ns, mean, int(part["device"][0]), int(metric)))
    return np.array(result, GAUGE)


Rows = npt.NDArray[np.void]

SECOND = 1_000_000_000
SLACK_NS = SECOND // 2
"""How much later than ordered a burst may begin: it waits for the end of a step."""
QUIET_NS = SECOND // 4
"""The agent reports spans every 150 ms while it traces; after that long without one it is over."""
MARGIN_NS = 10_000_000
"""Sent before and after a traced span: host times of samples are a little off."""
PATIENCE_NS = 3 * SECOND
"""A span whose last samples have not come after this long is sent without them."""
DENSE_A_SECOND, DENSE_MOST = 1_500, 8_000
"""Samples evaluated one by one: on average (3 % of a core) and at once."""
KEPT_SAMPLES = 20_000
FOREVER = 1 << 62


class Bursts:
    """When to evaluate every sample, and which of them to send. Times are CLOCK_REALTIME."""

    def __init__(self, now_ns: int) -> None:
        self._until_ns = 0
        self._spans: list[tuple[int, int, int]] = []
        """Traced and not sent yet: start, end, when heard of."""
        self._buffered: deque[Rows] = deque()
        self._sent_ns: dict[int, int] = {}
        """End of the last sample that was sent, by device, on the GPU's clock."""
        self._allowed = float(DENSE_MOST)
        self._now_ns = now_ns

    def expect(self, until_ns: int | None, now_ns: int) -> None:
        """Kernels will be traced until about then; None: until told otherwise, 0: no more."""
        if until_ns is None:
            self._until_ns = FOREVER
        else:
            self._until_ns = until_ns + SLACK_NS if until_ns > now_ns else 0

    def traced(self, spans: Rows, now_ns: int) -> None:
        """`wire.OBSERVED` rows of the agent."""
        for row in spans:
            if row["end_ns"] > row["start_ns"]:
                self._spans.append((int(row["start_ns"]), int(row["end_ns"]), now_ns))
        if self._until_ns < FOREVER:
            self._until_ns = now_ns + QUIET_NS

    def wanted(self, now_ns: int) -> bool:
        """Whether all samples that are read now, those since the call before, are to be evaluated."""
        before_ns, self._now_ns = self._now_ns, now_ns
        since = max(0, now_ns - before_ns)
        self._allowed = min(DENSE_MOST, self._allowed + since / SECOND * DENSE_A_SECOND)
        return before_ns <= self._until_ns and self._allowed > 0

    def keep(self, rows: Rows) -> None:
        """Takes in samples in order of time. Between two there may be a gap, of which nothing is known."""
        self._allowed -= len(rows)
        self._buffered.append(rows)
        while sum(map(len, self._buffered)) > KEPT_SAMPLES:
            self._buffered.popleft()

    def due(self, now_ns: int) -> list[Rows]:
        """Samples to send: of traced spans, each once, one array a device."""
        if not self._spans or not self._buffered:
            self._spans = [s for s in self._spans if now_ns - s[2] < PATIENCE_NS]
            return []
        rows = np.concatenate(self._buffered)
        starts, ends = on_host_clock(rows)
        newest = int(ends.max())
        ready = [s for s in self._spans if s[1] + MARGIN_NS < newest or now_ns - s[2] > PATIENCE_NS]
        if not ready:
            return []
        self._spans = [s for s in self._spans if s not in ready]
        near = np.zeros(len(rows), np.bool_)
        for low, high, _ in ready:
            near |= (ends > low - MARGIN_NS) & (starts < high + MARGIN_NS)
        due_rows = []
        for device in np.unique(rows["device"][near]).tolist():
            of_device = near & (rows["device"] == device)
            of_device &= rows["end_ns"] > self._sent_ns.get(device, -FOREVER)
            if of_device.any():
                due_rows.append(rows[of_device])
                self._sent_ns[device] = int(rows["end_ns"][of_device].max())
        return due_rows
