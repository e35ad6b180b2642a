"""Asks the stand-in NVML, and prints what came of it as JSON. Run as a script by `conftest.ask`."""

import json
import os
import sys
import time
from typing import Any

from collectors import doctor as cuda
from collectors.gpu.devices import device_facts, list_devices, visible_to
from collectors.gpu.nvml import NvmlUnavailable, close_nvml, open_nvml
from collectors.gpu.sampler import DeviceSampler
from collectors.gpu.sampler_thread import GaugeThread
from collectors.protocol.frames import Kind
from collectors.vocabulary import Metric


def readings(rounds: int = 2, pause_s: float = 0.12, trainer: int | None = None) -> Any:
    """Named readings of each round on the first device, and what the sampler knows after them."""
    nvml = open_nvml()
    devices, notes = list_devices(nvml)
    sampler = DeviceSampler(nvml, devices[0], trainer)
    result = []
    began = time.monotonic()
    for _ in range(rounds):
        time.sleep(pause_s)
        result.append({m.name: v for m, v in [*sampler.fast(), *sampler.sample()]})
    says = sampler.remarks
    absent = sorted(sampler.questions.absent)
    sampler.close()
    library = nvml.nvmlLib
    return {
        "rounds": result,
        "took_s": time.monotonic() - began,
        "says": says,
        "absent": absent,
        "notes": notes,
        "lost": sampler.questions.lost,
        "calls": {name: library.fake_nvml_calls(name.encode()) for name in COUNTED},
        "live_samples": library.fake_nvml_live_samples(),
    }


COUNTED = (
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetMaxClockInfo",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlGpmSampleGet",
)


def facts() -> Any:
    nvml = open_nvml()
    devices, _ = list_devices(nvml)
    visible, caveat = visible_to(devices, os.environ)
    result = {number: device_facts(nvml, one, number) for number, one in visible.items()}
    close_nvml(nvml)
    return {"devices": [one.uuid for one in devices], "visible": result, "caveat": caveat}


def unavailable() -> Any:
    try:
        open_nvml()
    except NvmlUnavailable as why:
        return [why.message, why.action]
    return None


def thread(least_sm: int = 3) -> Any:
    """What comes until the SMs were read so often, or nothing more will."""
    feed, frames, gauges, began = GaugeThread(), [], [], time.monotonic()
    feed.start()
    feed.ready.wait(60)
    while sum(metric == Metric.SM_ACTIVE for *_, metric in gauges) < least_sm:
        time.sleep(0.05)
        frames += feed.drain()
        gauges = [row for f in frames if f.kind == Kind.GAUGES for row in f.body.tolist()]
    says = feed.remarks
    ended = feed.close()
    return {
        "took_s": time.monotonic() - began,
        "devices": [f.body for f in frames if f.kind == Kind.DEVICE],
        "metrics": sorted({Metric(metric).name for _, _, _, metric in gauges}),
        "sm": len([1 for _, _, _, metric in gauges if metric == Metric.SM_ACTIVE]),
        "util": len([1 for _, _, _, metric in gauges if metric == Metric.SMI_UTIL]),
        "late_s": max(abs(time.time_ns() - t) for t, *_ in gauges) / 1e9 if gauges else None,
        "says": says,
        "ended": ended,
    }


def doctor() -> Any:
    check = cuda.nvml(None)
    return [check.status.value, check.message, check.fix, check.blocks]


def hangs() -> Any:
    feed = GaugeThread()
    feed.start()
    time.sleep(0.3)
    began = time.monotonic()
    ended = feed.close(0.2)
    print(json.dumps({"ended": ended, "waited_s": time.monotonic() - began}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    scenario, *rest = sys.argv[1].split(":")
    known = {
        "facts": facts,
        "hangs": hangs,
        "thread": lambda: thread(int(rest[0]) if rest else 3),
        "unavailable": unavailable,
        "readings": readings,
        "early": lambda: readings(4, 0.03),
        "doctor": doctor,
        "often": lambda: readings(12, 0.02),
        "own": lambda: readings(1, 0.0, int(rest[0])),
    }
    print(json.dumps(known[scenario]()))
