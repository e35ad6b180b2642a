"""PM sampling on one device by cupti-python: what is sampled, how it is read, and what the binding needs.

Samples may be missing: beside a process that computes, CUPTI loses some (H200, driver 580, CUPTI 13.0
and 13.4). What is read is right all the same.

A Python that has torch as well has torch's libcupti too, often an older one, and cupti-python takes
whichever it finds first: CUPTI 13.0 then answers calls of a 13.4 binding with INVALID_PARAMETER.
A library that is loaded already is taken before any other, so the right one is loaded first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import time
from collections import deque
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

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
_KEPT_IMAGES = 256
"""Some KiB each, one a configuration."""
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
        self._hosts = prepare(sampling)
        self._collector = sampling.Collector(device_index=ordinal)
        self.columns: list[str] = []
        self._clock = ClockMatch()
        self._is_first = True
        self._newest_ns = 0
        self._faults = 0
        # With the oldest kept, the buffer ran over for good after the first reading as soon as another
        # process computed, and starting anew failed (H200, driver 580, CUPTI 13.0 and 13.4).
        mode = getattr(sampling, "HardwareBufferAppendMode", None)
        self._mode = {} if mode is None else {"hw_buffer_append_mode": mode.KEEP_LATEST}
        self._open()

    def _open(self) -> None:
        self._collector.enable()
        with contextlib.ExitStack() as undo:
            undo.callback(self._collector.disable)
            self.columns = list(COUNTERS)
            while not self._accepts([COUNTERS[column] for column in self.columns]):
                self.columns.pop()
            self._collector.start()
            undo.pop_all()
        self._drained_s = time.monotonic()

    def _accepts(self, metrics: list[str]) -> bool:
        """Sets these metrics, where they can be had together; the last one alone has to be.

        Raises:
            Exception: Whatever cupti-python raises for reasons that fewer metrics do not mend.
        """
        if len(metrics) > 1 and not self._fits_one_pass(metrics):
            return False
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

    def _fits_one_pass(self, metrics: list[str]) -> bool:
        """As the host side says, as NVIDIA and PyTorch ask before they configure: what the device would
        refuse is never tried on it."""
        if self._hosts is None:
            return True
        host = self._hosts.ProfilerHost(
            self._collector._chip_name, self._hosts.ProfilerType.PM_SAMPLING
        )
        try:
            host.initialize()
            return int(self._hosts.get_num_of_passes(host.create_config_image(metrics))) == 1
        except Exception:  # noqa: BLE001 - a metric that this chip lacks; if all fail, the device says why
            return False
        finally:
            host.deinitialize()

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
        rows["start_ns"] = [one.start_timestamp for one in taken]
        rows["end_ns"] = [one.end_timestamp for one in taken]
        values = np.array([one.metric_values for one in taken], np.float64) / 100
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
        """Gives the counters back. A decode after the stop fails, so there is none."""
        try:
            self._collector.stop()
        finally:
            self._collector.disable()


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


# --- the binding --------------------------------------------------------------------

_FILE = re.compile(r"libcupti\.so(?:\.\d+)*$")


def sampling_module() -> Any:
    """`cupti.pm_sampling`, with the library that belongs to it."""
    load_cupti()
    return import_module("cupti.pm_sampling")


def load_cupti(search: list[str] | None = None) -> Path | None:
    """Loads the libcupti that fits the binding, for all to see.

    Args:
        search: Folders as in `sys.path`; None: `sys.path`.

    Returns:
        The file that was loaded; None where none loads, and cupti-python looks by its own rules.
    """
    try:
        files = candidates(search)
    except Exception:  # noqa: BLE001 - broken metadata of any package must not cost the counters
        return None
    for file in files:
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(file), mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)
            return file
    return None


def candidates(search: list[str] | None = None) -> list[Path]:
    """Files of installed libcupti packages: first those that fit the binding, then the others; among
    equals by `search`. Another major version has another soname, and is loaded beside the binding's.
    """
    where = sys.path if search is None else search
    binding = next(iter(metadata.distributions(name="cupti-python", path=where)), None)
    wanted = _version(binding.version)[:2] if binding else ()
    files: dict[Path, bool] = {}
    for package in metadata.distributions(name="nvidia-cuda-cupti", path=where):
        version = _version(package.version)
        for entry in package.files or ():
            file = Path(str(package.locate_file(entry))).absolute()
            if _FILE.fullmatch(entry.name) and file.is_file():
                files.setdefault(file, version[:1] == wanted[:1] and version[:2] >= wanted)
    return sorted(files, key=lambda file: not files[file])


def _version(text: str | None) -> tuple[int, ...]:
    """Leading numbers of a version; empty where there is none."""
    return tuple(int(part) for part in re.findall(r"\d+", text or ""))


def prepare(sampling: Any) -> Any:
    """Mends version 13.4 of `cupti.pm_sampling`, once; one that is built otherwise is left as it is.

    Returns:
        The module `cupti.profiler_host`; None where this binding has none.
    """
    try:
        hosts = sampling.cupti.profiler_host
        data, collector, host = sampling.CounterData, sampling.Collector, hosts.ProfilerHost
        if not getattr(sampling, "brrrtop_mended", False):
            _share_evaluator(data)
            _keep_images(host)
            _count_ends(collector)
            sampling.brrrtop_mended = True
    except AttributeError:
        return None
    return hosts


def _share_evaluator(data: Any) -> None:
    """Has cupti-python evaluate all batches with one host object, as CUPTI's own samples do.

    Version 13.4 makes one for each batch, about 70 ms of one core (H200 host, ten batches a
    second).
    """
    made = data._initialize_host
    hosts: dict[str, Any] = {}

    def shared(self: Any) -> None:
        chip = str(self._chip_name)
        if chip not in hosts:
            made(self)
            self._host_finalizer.detach()
            hosts[chip] = self._host
        self._host = hosts[chip]

    data._initialize_host = shared


def _keep_images(host: Any) -> None:
    """Has the configurations outlive the calls that they are made for.

    CUPTI keeps the pointer that it is configured with: freed or written over, sampling hangs or
    crashes (PyTorch's Kineto, pull request 1532). cupti-python keeps the last one only, and none
    that was refused.
    """
    made = host.create_config_image
    images: deque[Any] = deque(maxlen=_KEPT_IMAGES)

    def kept(self: Any, metrics: Any) -> Any:
        images.append(made(self, metrics))
        return images[-1]

    host.create_config_image = kept


def _count_ends(collector: Any) -> None:
    """Ends CUPTI's profiler with the last collector only.

    CUPTI does not count who began it: the second end crashes, and the first takes the profiler
    from collectors of other devices (PyTorch, pull request 188849).
    """
    begin, end = collector.enable, collector._profiler_deinitialize
    live = 0

    def enable(self: Any) -> None:
        nonlocal live
        before, live = live, live + 1
        try:
            begin(self)
        except BaseException:
            live = before  # it has ended what it had begun, by `deinitialize`
            raise

    def deinitialize() -> None:
        nonlocal live
        live = max(0, live - 1)
        if not live:
            end()

    collector.enable = enable
    collector._profiler_deinitialize = staticmethod(deinitialize)


_ADMIN = (
    "hardware counters are for administrators on this machine: run brrrtop as root, or load the "
    "driver with NVreg_RestrictProfilingToAdminUsers=0"
)
_TAKEN = (
    "another tool samples this GPU's hardware counters (DCGM, nsys, ncu or a second brrrtop): "
    "stop it and start brrrtop again"
)
_NEVER = "this GPU has no counters that can be sampled by time (Ampere GA10x and newer)"

# Parts of CUPTI result names and of cupti-python's sentences → ours.
_KNOWN: tuple[tuple[str, str], ...] = (
    ("INSUFFICIENT_PRIVILEGES", _ADMIN),
    ("already enabled", _TAKEN),
    ("HARDWARE_BUSY", _TAKEN),
    ("MULTIPLE_SUBSCRIBERS", _TAKEN),
    ("VIRTUALIZED", "hardware counters are not to be had inside this virtual GPU"),
    ("MIG", "hardware counters cannot be sampled on a MIG device"),
    ("CONFIDENTIAL", "hardware counters are off in confidential computing mode"),
    ("nvperf", "CUPTI's libnvperf libraries are missing: reinstall nvidia-cuda-cupti"),
    ("libcuda.so.1", "hardware counters need the NVIDIA driver, which is not here"),
    (
        "INVALID_PARAMETER",
        "the CUPTI library that was loaded is older than cupti-python expects: "
        "`pip install --upgrade cupti-python nvidia-cuda-cupti` where brrrtop is installed",
    ),
    ("not supported", _NEVER),
    ("NOT_SUPPORTED", _NEVER),
)


def sentence(fault: BaseException) -> str:
    """One sentence for whatever stopped the counters."""
    if isinstance(fault, ImportError):
        return "hardware counters need the package cupti-python: `pip install cupti-python`"
    if isinstance(fault, PermissionError):
        return _ADMIN
    text = str(fault)
    known = next((sentence for part, sentence in _KNOWN if part in text), None)
    return known or f"hardware counters stopped: {type(fault).__name__}: {text}"
