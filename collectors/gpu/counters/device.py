"""PM sampling on one device: what is sampled, and how it is read.

Samples may be missing: beside a process that computes, CUPTI loses some (H200, driver 580, CUPTI 13.0
and 13.4). What is read is right all the same.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from collectors.gpu.counters.cupti_python import fits_one_pass, prepare
from collectors.protocol.frames import SAMPLE, SAMPLE_COLUMNS

INTERVAL_NS = 200_000
HARDWARE_BUFFER_BYTES = 64 << 20
SAMPLES_LEAST, SAMPLES_MOST = 256, 4_096
"""Of one decode, about 18 KiB of counter image each. What there is beyond is lost (H200, CUPTI 13.4:
after 512 of 2,500 pending ones at 100 us came those from 197 ms later on)."""
FAULTS_IN_A_ROW = 3
"""A decode that fails is followed by a new start so often, then the counters are given up."""
LONGEST = 1.5
"""Of the usual length of a sample: what is longer is left out."""
_RECENT_NS = 10_000_000_000
"""A sample that ended so long before the newest is no second reading: the clock was set."""
_KEPT_PAIRS = 100
_SAME_NS = 1_000_000_000
"""Clocks this near are one and the same, read late: CUPTI 13.4 stamps samples on the host's clock
(H200: within 5 us of the kernels, while reading was 8 ms late)."""
_P = ".avg.pct_of_peak_sustained_elapsed"

COUNTERS: dict[str, str] = {
    "sm": "sm__cycles_active" + _P,
    "tensor": "sm__pipe_tensor_cycles_active" + _P,
    "dram": "dram__throughput" + _P,
    "gr": "gr__cycles_active" + _P,
    "warps": "sm__warps_active" + _P,
}
"""Column → metric, dearest last: dropped from the end until the rest fits into one pass. Together
they took one pass on an H200 with CUPTI 13.4."""


class DeviceCounters:
    """PM sampling on one device.

    Args:
        sampling: The module `cupti.pm_sampling`.
        ordinal: CUDA's number of the device in this process.
    """

    def __init__(self, sampling: Any, ordinal: int, interval_ns: int = INTERVAL_NS) -> None:
        self._interval_ns = interval_ns
        self._sampling = sampling
        prepare(sampling)
        self._collector = sampling.Collector(device_index=ordinal)
        self.columns: list[str] = []
        self._tried: list[str] = []
        """The metrics that were set last, taken or refused."""
        self._clock = ClockMatch()
        self._is_first = True
        self._newest_ns = 0
        self._faults = 0
        self._mode = latest_mode(sampling)
        self._open()

    def _open(self) -> None:
        self._collector.enable()
        with contextlib.ExitStack() as undo:
            undo.callback(self._collector.disable)
            self._configure()
            self._collector.start()
            undo.pop_all()
        self._drained_s = time.monotonic()

    def _configure(self) -> None:
        """Sets what fits into one pass: at once where that can be asked beforehand, else by trying."""
        fits = fits_one_pass(self._sampling, self._collector)
        if fits is not None:
            self.columns, metrics = chosen(fits)
            if metrics and self._accepts(metrics):
                return
        self.columns, metrics = chosen(self._accepts)
        if metrics != self._tried:
            self._accepts(metrics)

    def _accepts(self, metrics: list[str]) -> bool:
        """Sets these metrics, where they can be had together; the last one alone has to be.

        Raises:
            Exception: Whatever cupti-python raises for reasons that fewer metrics do not mend.
        """
        self._tried = metrics
        try:
            self._collector.configure(
                metrics=metrics,
                hardware_buffer_size=HARDWARE_BUFFER_BYTES,
                sampling_interval=self._interval_ns,
                **self._mode,
            )
        except ValueError:
            if len(metrics) == 1:
                raise
            return False
        return True

    def drain(self, device: int, every: int = 1) -> npt.NDArray[np.void]:
        """The intervals that ended since the call before, as `SAMPLE` rows of `device`.

        Args:
            every: Evaluate only every so-manieth, the newest among them.
        """
        before_s, self._drained_s = self._drained_s, time.monotonic()
        pending = int((self._drained_s - before_s) * 1.25e9 / self._interval_ns)
        most = min(SAMPLES_MOST, pending + SAMPLES_LEAST)
        try:
            decoded = self._collector.decode(max_samples=most)
        except Exception as fault:
            self._faults += 1
            # A buffer that ran over is no fault, and CUPTI 13.4 answers ERROR_UNKNOWN now and then.
            if not isinstance(fault, MemoryError) and self._faults > FAULTS_IN_A_ROW:
                raise
            # A buffer that keeps the latest goes on by itself; a start anew is what fails next.
            if not (self._mode and isinstance(fault, MemoryError)):
                self._restart()
            return np.zeros(0, SAMPLE)
        self._faults = 0
        now_ns = time.time_ns()
        count = len(decoded)
        taken = list(decoded[(count - 1) % every :: every]) if count else []
        if taken and self._is_first:
            taken, self._is_first = taken[1:], False  # its time stamp is bogus (PyTorch's notes)
        rows = np.zeros(len(taken), SAMPLE)
        if not len(rows):
            return rows
        rows["device"] = device
        rows["start_ns"] = [sample.start_timestamp for sample in taken]
        rows["end_ns"] = [sample.end_timestamp for sample in taken]
        values = np.array([sample.metric_values for sample in taken], np.float64) / 100
        for column in SAMPLE_COLUMNS:
            rows[column] = np.nan
        for at, column in enumerate(self.columns):
            rows[column] = values[:, at]
        rows["offset_ns"] = self._clock.offset_ns(int(rows["end_ns"][-1]), now_ns)
        rows = rows[self._whole(rows)]
        if len(rows):
            self._newest_ns = int(rows["end_ns"].max())
        return rows

    def _whole(self, rows: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
        """Which rows are one interval each, and new.

        A longer one reaches over samples that were lost, and nobody knows which part it counted.
        """
        lengths = rows["end_ns"] - rows["start_ns"]
        sane = (lengths > 0) & (lengths < 100 * self._interval_ns)
        if sane.any():
            sane &= lengths < LONGEST * max(self._interval_ns, float(np.median(lengths[sane])))
        again = (rows["end_ns"] <= self._newest_ns) & (
            rows["end_ns"] > self._newest_ns - _RECENT_NS
        )
        whole: npt.NDArray[np.bool_] = sane & ~again
        return whole

    def _restart(self) -> None:
        try:
            self._collector.stop()
            self._collector.start()
        except Exception:  # noqa: BLE001 - then from the very start
            self._collector.disable()
            self._open()
        self._is_first = True

    def close(self) -> None:
        try:
            self._collector.stop()
        finally:
            self._collector.disable()


def chosen(fits: Callable[[list[str]], bool]) -> tuple[list[str], list[str]]:
    """Columns and their metrics, the most that `fits`; empty where nothing does."""
    columns = list(COUNTERS)
    while columns and not fits([COUNTERS[column] for column in columns]):
        columns.pop()
    return columns, [COUNTERS[column] for column in columns]


def latest_mode(sampling: Any) -> dict[str, Any]:
    """What has the hardware buffer keep the latest samples; empty where this version cannot.

    With the oldest kept, the buffer ran over for good after the first reading as soon as another
    process computed, and starting anew failed (H200, driver 580, CUPTI 13.0 and 13.4).
    """
    modes = getattr(sampling, "HardwareBufferAppendMode", None)
    latest = getattr(modes, "KEEP_LATEST", None)
    return {} if latest is None else {"hw_buffer_append_mode": latest}


class ClockMatch:
    """The offset between two clocks, from pairs of which one is always a little late.

    A sample can only be read after its interval has ended, so host time at reading minus the
    sample's end is the offset plus a delay that is never negative. The smallest seen of late is
    the offset, too large by the smallest delay (about ten milliseconds).
    """

    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=_KEPT_PAIRS)

    def offset_ns(self, device_ns: int, host_ns: int) -> int:
        """What to add to device times.

        Args:
            device_ns: End of the newest sample, on the GPU's clock.
            host_ns: When it was read, on CLOCK_REALTIME.
        """
        self._seen.append(host_ns - device_ns)
        least = min(self._seen)
        return 0 if 0 <= least < _SAME_NS else least
