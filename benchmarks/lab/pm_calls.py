"""The process of `pm_steps.py` that samples: every call into CUPTI is noted before it is made."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

HOST_SIZE_13_0 = 48
"""Of `CUpti_Profiler_Host_Initialize_Params`, the one structure of this sequence that grew between CUPTI 13.0 and
13.4 (56): the older library refuses the longer one with INVALID_PARAMETER and takes this one (tried without a GPU)."""
SEEN = ("pm_sampling_", "profiler_", "device_get_chip_name")
OFTEN = ("pm_sampling_counter_data_get_sample_info", "profiler_host_evaluate_to_gpu_values")
"""Thousands of calls a second: only the note of the call under way tells of these."""


@dataclass(frozen=True)
class Variant:
    """How one process samples."""

    library: str = "newest"
    """Of the libcupti files found: `newest`, which the product takes, or `oldest`."""
    through: str = "product"
    """`product`: DeviceCounters; `plain`: cupti-python's Collector, configured once."""
    buffer_mib: int = 64
    interval_us: int = 200
    images: str = "fresh"
    """Counter images: `fresh` for each decode and freed, `kept`: never freed, `same`: one for all decodes."""
    context: bool = False
    """With CUDA's primary context current in the sampling thread."""
    thread: bool = True
    latest: bool = False
    """The buffer keeps the latest records; otherwise it runs over."""
    most: int = 4096
    """Samples of one decode, where `plain`."""
    every_s: float = 0.5
    """Between two decodes."""
    configured: str = "once"
    """Where `plain`: `once`; `again`, after sets that the device refuses, with nothing of the earlier ones kept; or
    `rewritten`: what it was configured with is written over, which CUPTI is said not to stand (Kineto 1532)."""
    two: bool = False
    """The next device too, which is closed first."""
    gpm: bool = False
    """With NVML's and GPM's readings in the same process."""
    load: bool = False
    script: str = ""
    """Of the folder of scripts, as the load; else the artificial one."""


class Notes:
    """A log, and a file that always holds the call under way: both outlive a crash."""

    def __init__(self, folder: Path, name: str) -> None:
        self.began = time.monotonic()
        self.log = os.open(folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._now = os.open(folder / f"{name}.now", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def now(self, text: str) -> None:
        os.pwrite(self._now, text.ljust(120)[:120].encode(), 0)

    def line(self, text: str) -> None:
        os.write(self.log, f"{time.monotonic() - self.began:8.4f} {text}\n".encode())


@dataclass
class Found:
    opened: list[str] = field(default_factory=list)
    decodes: int = 0
    samples: int = 0
    with_samples: int = 0
    last_samples_s: float = 0.0
    overflows: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    first_faults: dict[str, str] = field(default_factory=dict)
    decode_ms: list[float] = field(default_factory=list)
    slowest_ms: dict[str, float] = field(default_factory=dict)
    image_bytes: int = 0
    configured: int = 0
    batches: list[int] = field(default_factory=list)
    """Samples of each decode, all of them."""
    covered_share: float | None = None
    """Of the time from the first sample's start to the last one's end."""
    covered_of_run: float | None = None
    """Of the time from the start of sampling to the last decode."""
    again: int = 0
    """Samples that ended no later than one of an earlier decode."""
    long: int = 0
    """Samples of more than one and a half intervals."""
    tensor_mean: float | None = None
    libraries: list[str] = field(default_factory=list)
    cupti: int = 0


def noted(module: Any, notes: Notes, found: Found) -> None:
    """Has every call of PM sampling told before and after; what decoding says of the buffer is counted."""
    for name in dir(module):
        call = getattr(module, name)
        plain = name.startswith(SEEN) and callable(call) and not name.endswith("dtype")
        if plain and not isinstance(call, type):
            setattr(module, name, told(name, call, notes, found))


def told(name: str, call: Any, notes: Notes, found: Found) -> Any:
    often = name in OFTEN

    def one(params: int) -> Any:
        notes.now(f"{name} after {time.monotonic() - notes.began:.4f} s")
        if not often:
            notes.line(f"> {name}")
        began, says = time.monotonic(), "ok"
        try:
            return call(params)
        except BaseException as fault:
            says = f"{type(fault).__name__}: {fault}"
            key = f"{name}: {says}"[:160]
            found.faults[key] = found.faults.get(key, 0) + 1
            raise
        finally:
            took_ms = round((time.monotonic() - began) * 1e3, 2)
            found.slowest_ms[name] = max(took_ms, found.slowest_ms.get(name, 0.0))
            if name == "pm_sampling_decode_data":
                says += " " + buffer_state(params, found)
                found.decode_ms.append(took_ms)
            elif name == "pm_sampling_set_config":
                found.configured += 1
            if not often:
                notes.line(f"< {name} {took_ms:.2f} ms {says}")
            notes.now(f"after {name}")

    return one


def buffer_state(params: int, found: Found) -> str:
    """Stop reason and overflow of `CUpti_PmSampling_DecodeData_Params`: after five words."""
    reason = ctypes.c_int.from_address(params + 40).value
    over = ctypes.c_uint8.from_address(params + 44).value
    found.image_bytes = ctypes.c_size_t.from_address(params + 32).value
    found.overflows += bool(over)
    found.reasons[str(reason)] = found.reasons.get(str(reason), 0) + 1
    return f"stop reason {reason} overflow {over} image {found.image_bytes}"


class Times:
    """When the samples of each decode were taken."""

    def __init__(self, notes: Notes, found: Found, interval_ns: int) -> None:
        self._notes, self._found, self._interval_ns = notes, found, interval_ns
        self._first_ns = self._newest_ns = self._covered_ns = 0
        self._began_s = time.monotonic()

    def begin(self) -> None:
        self._began_s = time.monotonic()

    def watch(self, sampling: Any) -> None:
        decode = sampling.Collector.decode

        def watched(collector: Any, *args: Any, **given: Any) -> Any:
            data = decode(collector, *args, **given)
            self._add(data._start_timestamps, data._end_timestamps)
            return data

        sampling.Collector.decode = watched

    def _add(self, starts: list[int], ends: list[int]) -> None:
        found, pairs = self._found, list(zip(starts, ends, strict=True))
        found.batches.append(len(pairs))
        if not self._newest_ns:
            pairs = pairs[1:]  # the very first time stamp is bogus
        again = sum(end <= self._newest_ns for _, end in pairs)
        lengths = [end - start for start, end in pairs]
        long = sum(length > 1.5 * self._interval_ns for length in lengths)
        gaps = [low - high for (_, high), (low, _) in pairwise(pairs)]
        found.again, found.long = found.again + again, found.long + long
        good = [x for x in lengths if 0 < x <= 1.5 * self._interval_ns]
        self._covered_ns += sum(good)
        if not pairs:
            self._notes.line("times: no samples")
            return
        self._first_ns = self._first_ns or pairs[0][0]
        since_ms = (pairs[0][0] - self._newest_ns) / 1e6 if self._newest_ns else 0.0
        self._newest_ns = max(self._newest_ns, pairs[-1][1])
        late_ms = (time.time_ns() - pairs[-1][1]) / 1e6
        self._notes.line(
            f"times: {len(pairs)} samples, {sum(good) / 1e6:.0f} ms of {(pairs[-1][1] - pairs[0][0]) / 1e6:.0f} ms, "
            f"{since_ms:.1f} ms after the last of before, newest {late_ms:.0f} ms old, longest gap "
            f"{max(gaps, default=0) / 1e6:.1f} ms, longest sample {max(lengths) / 1e6:.2f} ms, again {again}, "
            f"long {long}"
        )  # fmt: skip
        spanned_ns = self._newest_ns - self._first_ns
        found.covered_share = round(self._covered_ns / spanned_ns, 3) if spanned_ns > 0 else None
        ran_ns = (time.monotonic() - self._began_s) * 1e9
        found.covered_of_run = round(self._covered_ns / ran_ns, 3)


def with_images(sampling: Any, how: str) -> None:
    """What becomes of the memory that decodes write into."""
    make = sampling.Collector._create_counter_data_image
    kept: list[tuple[int, Any]] = []
    if how == "fresh":
        return

    def image(self: Any, max_samples: int) -> Any:
        if how == "same" and kept and kept[0][0] == max_samples:
            old = kept[0][1]
            cupti = sys.modules["cupti.cupti"]
            params = cupti.PmSamplingCounterDataImageInitializeParams()
            params.struct_size = cupti.PM_SAMPLING_COUNTER_DATA_IMAGE_INITIALIZE_PARAMS_STRUCT_SIZE
            params.p_pm_sampling_object = self._pm_sampling_object
            params.counter_data_size, params.p_counter_data = len(old), old.ctypes.data
            cupti.pm_sampling_counter_data_image_initialize(params.ptr)
            return old
        made = make(self, max_samples)
        kept.append((max_samples, made))
        return made

    sampling.Collector._create_counter_data_image = image


def current_context(device: int) -> None:
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    for code in (
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
    ):
        if code:
            raise RuntimeError(f"no primary context: CUDA answers {code}")  # fmt: skip


class Plain:
    """As in NVIDIA's sample: configured once, decoded again and again."""

    def __init__(self, sampling: Any, device: int, variant: Variant) -> None:
        from collectors.counter_device import _P, COUNTERS, ISSUE

        mode = sampling.HardwareBufferAppendMode
        self._most = variant.most
        self._collector = sampling.Collector(device_index=device)
        self._collector.enable()
        given = {
            "hardware_buffer_size": variant.buffer_mib << 20,
            "sampling_interval": variant.interval_us * 1000,
            "hw_buffer_append_mode": mode.KEEP_LATEST if variant.latest else mode.KEEP_OLDEST,
        }
        metrics = list(COUNTERS.values())
        self._collector.configure(metrics=metrics, **given)
        if variant.configured == "again":
            for more in ISSUE:
                with contextlib.suppress(ValueError):
                    self._collector.configure(metrics=[*metrics, more + _P], **given)
            self._collector.configure(metrics=metrics, **given)
        elif variant.configured == "rewritten":
            self._collector._config[:] = 255
        self._collector.start()
        self.columns = list(COUNTERS)

    def drain(self, device: int, every: int = 1) -> Any:
        return self._collector.decode(max_samples=self._most)[::every]

    def close(self) -> None:
        try:
            self._collector.stop()
        finally:
            self._collector.disable()


def opened(variant: Variant, device: int, sampling: Any) -> Any:
    from collectors.counter_device import DeviceCounters

    if variant.through == "plain":
        return Plain(sampling, device, variant)
    return DeviceCounters(sampling, device, variant.interval_us * 1000)


def sample(variant: Variant, device: int, seconds: float, notes: Notes, found: Found) -> None:
    """The whole sequence, with a decode each `every_s`."""
    from collectors import counter_device
    from collectors.cuda_devices import cuda_ordinals

    notes.now("cuInit")
    notes.line(f"cuInit: devices {sorted(cuda_ordinals().values())}")
    if variant.context:
        notes.now("cuCtxSetCurrent")
        current_context(device)
    from cupti import pm_sampling

    with_images(pm_sampling, variant.images)
    counter_device.HARDWARE_BUFFER_BYTES = variant.buffer_mib << 20
    times = Times(notes, found, variant.interval_us * 1000)
    times.watch(pm_sampling)
    counters = opened(variant, device, pm_sampling)
    times.begin()
    tensor: list[float] = []
    if variant.two:
        opened(variant, device + 1, pm_sampling).close()
        notes.line("the other device was opened and closed")
    found.opened = counters.columns
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            time.sleep(variant.every_s)
            found.decodes += 1
            try:
                rows = counters.drain(device, 5)
            except Exception as fault:
                key = f"{type(fault).__name__}: {fault}"[:200]
                notes.line(f"decode: {key}")
                found.first_faults.setdefault(key, f"{time.monotonic() - notes.began:.2f} s")
                continue
            found.samples += len(rows)
            if len(rows):
                found.with_samples += 1
                found.last_samples_s = round(time.monotonic() - notes.began, 2)
                tensor += tensors(rows)
                found.tensor_mean = round(sum(tensor) / len(tensor), 3)
            notes.line(f"decode {found.decodes}: every fifth of the samples: {len(rows)}")
    finally:
        counters.close()


def tensors(rows: Any) -> list[float]:
    """Tensor activity of samples, 0..1: under a load of matrix products it is high in every one."""
    if hasattr(rows, "dtype"):
        return [float(value) for value in rows["tensor"]]
    return [one.metric_values[1] / 100 for one in rows]


def child(
    name: str, variant: Variant, device: int, seconds: float, library: str, out: Path
) -> None:
    notes, found = Notes(out, name), Found()
    faulthandler.enable(notes.log, all_threads=True)
    faulthandler.dump_traceback_later(seconds + 8.0, file=notes.log)
    loaded = ctypes.CDLL(library, ctypes.RTLD_GLOBAL) if library else None
    version = ctypes.c_uint32()
    if loaded is not None:
        loaded.cuptiGetVersion(ctypes.byref(version))
    found.cupti = version.value
    import cupti.cupti as bindings

    if 130000 <= version.value < 130100:
        bindings.PROFILER_HOST_INITIALIZE_PARAMS_STRUCT_SIZE = HOST_SIZE_13_0
    noted(bindings, notes, found)
    gauges = None
    if variant.gpm:
        from collectors.nvml_thread import GaugeThread

        gauges = GaugeThread(None)
        gauges.start()
    fault: list[str] = []

    def work() -> None:
        try:
            sample(variant, device, seconds, notes, found)
        except Exception as wrong:
            fault.append(f"{type(wrong).__name__}: {wrong}"[:300])

    if variant.thread:
        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
    else:
        work()
    if gauges is not None:
        gauges.close()
    maps = Path("/proc/self/maps").read_text().splitlines()
    seen = {line.split()[-1] for line in maps if "libcupti.so" in line or "libnvperf" in line}
    found.libraries = sorted(seen)
    notes.now("done")
    print(json.dumps(asdict(found) | {"fault": fault}), flush=True)
    os._exit(0)
