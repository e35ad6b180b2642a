"""What watching from outside costs: each NVML call, our threads' CPU, and the trainer's steps.

Needs an NVIDIA GPU and torch in the Python given by `--trainer-python` (default: this one).

    python benchmarks/nvml_cost.py [--pairs 20] [--slice 3] [--counters] [--json FILE]

The trainer is a process of its own, because it is in real life; samplers run and rest in turns, so
that drift falls on both sides alike.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from collectors.gpu.counters.sampler import CounterThread
from collectors.gpu.nvidia import fields
from collectors.gpu.nvidia.devices import list_devices
from collectors.gpu.nvidia.gpm import GpmSampler
from collectors.gpu.nvidia.nvml import Questions, close_nvml, open_nvml
from collectors.gpu.nvidia.sampler import NvmlSampler
from collectors.gpu.nvidia.sampler_thread import GaugeThread

TRAINER = """
import sys, time
from array import array
import torch
kind, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
x = torch.zeros(1024, device="cuda")
a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
def launches():
    for _ in range(1000):
        x.add_(1)
def matmuls():
    b = a
    for _ in range(20):
        b = a @ b
step = launches if kind == "launches" else matmuls
for _ in range(20):
    step()
torch.cuda.synchronize()
ends = array("q")
print("ready", flush=True)
stop = time.time() + seconds
while time.time() < stop:
    step()
    torch.cuda.synchronize()
    ends.append(time.time_ns())
with open(path, "wb") as file:
    file.write(ends.tobytes())
"""


def per_call(nvml: Any, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of each call the sampler makes, asked twenty times a second."""
    device = list_devices(nvml)[0][0]
    handle = device.handle
    questions: dict[str, Callable[[], Any]] = {
        "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle),
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(handle),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(handle),
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "reasons": lambda: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "processes": lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle),
        "max clock": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
        "enforced limit": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle),
    }
    for field in (4, 82, 138, 139, 186, 190, 197, 198):
        scope = fields.ALL_LINKS if field in (138, 139) else 0
        questions[f"field {field}"] = lambda f=field, s=scope: _field(nvml, handle, f, s)
    events = Questions(nvml).ask("events", nvml.nvmlEventSetCreate)
    if events is not None:
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        questions["xid poll"] = lambda: _polled(nvml, events)
    found = {name: _timed(question, rounds, nvml) for name, question in questions.items()}
    gpm = GpmSampler(nvml, device, Questions(nvml))
    times = []
    for _ in range(rounds):
        time.sleep(0.12)
        began = time.perf_counter()
        gpm.sample(time.monotonic_ns)
        times.append(1e6 * (time.perf_counter() - began))
    found["gpm sample and metrics"] = _spread(times)
    gpm.close()
    return {name: row for name, row in found.items() if row}


def _field(nvml: Any, handle: Any, field: int, scope: int) -> None:
    got = nvml.nvmlDeviceGetFieldValues(handle, [(field, scope)])[0]
    if got.nvmlReturn != 0:
        raise nvml.NVMLError(got.nvmlReturn)


def _polled(nvml: Any, events: Any) -> None:
    try:
        nvml.nvmlEventSetWait_v2(events, 0)
    except nvml.NVMLError_Timeout:
        return


def _timed(question: Callable[[], Any], rounds: int, nvml: Any) -> dict[str, float]:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        try:
            question()
        except nvml.NVMLError:
            return {}
        times.append(1e6 * (time.perf_counter() - began))
        time.sleep(0.05)
    return _spread(times)


def _spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_us": round(statistics.median(ordered), 1),
        "p90_us": round(ordered[int(0.9 * (len(ordered) - 1))], 1),
        "max_us": round(ordered[-1], 1),
    }


def cpu_share(seconds: float) -> dict[str, float]:
    """CPU of the gauge thread over wall time, and how much a second it brings."""
    feed = GaugeThread()
    feed.start()
    feed.ready.wait(10)
    time.sleep(1)
    feed.drain()
    spent, began = time.process_time(), time.monotonic()
    time.sleep(seconds)
    share = (time.process_time() - spent) / (time.monotonic() - began)
    rows = sum(len(frame.body) for frame in feed.drain())
    feed.close()
    return {"cpu_share": round(share, 5), "readings_per_s": round(rows / seconds, 1)}


def reading_time(nvml: Any) -> dict[str, float]:
    """Microseconds of one whole reading, GPM and the rest."""
    sampler = NvmlSampler(nvml, {0: list_devices(nvml)[0][0]})
    fast, slow = [], []
    for _ in range(30):
        time.sleep(0.25)
        began = time.perf_counter()
        sampler.fast()
        middle = time.perf_counter()
        sampler.sample()
        fast.append(1e6 * (middle - began))
        slow.append(1e6 * (time.perf_counter() - middle))
    sampler.close()
    return {"gpm_us": statistics.median(fast), "rest_us": statistics.median(slow)}


def steps(kind: str, pairs: int, slice_s: float, python: str, counters: bool) -> dict[str, Any]:
    """What sampling adds to the steps of a loop: paired slices, on and off in turns."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ends"
        seconds = 2 * pairs * slice_s + 2
        command = [python, "-c", TRAINER, kind, str(path), str(seconds)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trainer:
            assert trainer.stdout is not None
            trainer.stdout.readline()
            slices = _turns(trainer.pid, pairs, slice_s, counters)
            trainer.wait(seconds + 60)
        ends = np.fromfile(path, np.int64)
    means = {True: [], False: []}  # type: dict[bool, list[float]]
    longest = {True: 0.0, False: 0.0}
    for on, t0, t1 in slices:
        part = np.diff(ends[(ends >= t0) & (ends < t1)]) / 1e6
        means[on].append(float(part.mean()))
        longest[on] = max(longest[on], float(part.max()))
    shares = [a / b - 1 for a, b in zip(means[True], means[False], strict=True)]
    error = 1.96 * statistics.stdev(shares) / math.sqrt(len(shares))
    return {
        "loop": kind,
        "pairs": len(shares),
        "step_off_ms": round(statistics.mean(means[False]), 4),
        "added_percent": round(100 * statistics.mean(shares), 3),
        "error_percent": round(100 * error, 3),
        "longest_off_ms": round(longest[False], 2),
        "longest_on_ms": round(longest[True], 2),
    }


def _turns(pid: int, pairs: int, slice_s: float, counters: bool) -> list[tuple[bool, int, int]]:
    slices = []
    for turn in range(2 * pairs):
        on = turn % 4 in (0, 3)  # on off off on: drift in one direction cancels
        feeds: list[Any] = []
        if on:
            gauges = GaugeThread(pid)
            gauges.start()
            gauges.ready.wait(10)
            feeds.append(gauges)
            if counters:
                feeds.append(_counters(gauges, pid))
        time.sleep(0.2 if not counters else 1.0)
        began = time.time_ns()
        time.sleep(slice_s)
        slices.append((on, began, time.time_ns()))
        for feed in feeds:
            feed.close()
    return slices


def _counters(gauges: GaugeThread, pid: int) -> CounterThread:
    thread = CounterThread(pid)
    thread.start()
    deadline = time.monotonic() + 5
    uuids: dict[int, str] = {}
    while not uuids and time.monotonic() < deadline:
        time.sleep(0.05)
        for frame in gauges.drain():
            if isinstance(frame.body, dict) and frame.body.get("uuid"):
                uuids[frame.body["device_id"]] = frame.body["uuid"]
    thread.match(uuids)
    while not thread.active and not thread.says and time.monotonic() < deadline:
        time.sleep(0.05)
    print(f"counters: {thread.says}", file=sys.stderr)
    return thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--slice", type=float, default=3.0, help="seconds")
    parser.add_argument("--rounds", type=int, default=40, help="of each call")
    parser.add_argument("--counters", action="store_true", help="hardware counters as well")
    parser.add_argument("--skip-steps", action="store_true")
    parser.add_argument("--trainer-python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    nvml = open_nvml()
    device = list_devices(nvml)[0][0]
    result: dict[str, Any] = {
        "device": device.name,
        "driver": nvml.nvmlSystemGetDriverVersion(),
        "calls": per_call(nvml, args.rounds),
        "reading": reading_time(nvml),
    }
    close_nvml(nvml)
    result["thread"] = cpu_share(10)
    for name, row in result["calls"].items():
        print(f"{name:24} p50 {row['p50_us']:9.1f} us   max {row['max_us']:9.1f} us")
    print(f"one reading: {result['reading']}\nthread: {result['thread']}")
    if not args.skip_steps:
        result["steps"] = []
        for kind in ("launches", "matmuls"):
            row = steps(kind, args.pairs, args.slice, args.trainer_python, args.counters)
            result["steps"].append(row)
            print(row)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
