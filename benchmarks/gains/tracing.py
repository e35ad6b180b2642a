"""A Kineto trace of a few steps, with what brrrtop's importer reads and nothing else."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.gains.loops import Step
from benchmarks.gains.timing import sync

MOST_BYTES = 500_000
ARGS = (
    "External id", "device", "stream", "correlation", "registers per thread", "shared memory", "grid",
    "block", "bytes", "graph id", "graph node id", "channel", "Input Dims", "Input type",
    "Concrete Inputs", "Input Strides",
)  # fmt: skip
HOST = {"cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "overhead"}
GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
_STEP = re.compile(r"ProfilerStep#\d+$")
_TRIFLE = re.compile(
    r"cuda(Get|Peek|Func|Occupancy|StreamIsCapturing|StreamGet|DeviceGet|ThreadExchange|PointerGet|"
    r"EventQuery|DriverGet)|cu(Get|Ctx|Func|Occupancy|KernelGet|PointerGet|Device|Module|Library|Tensor)"
)


def profile(step: Step, steps: int) -> Any:
    """Profiles some steps of a warm loop, with shapes; what returns has `export_chrome_trace`."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=steps, repeat=1)
    with torch.profiler.profile(
        activities=activities, schedule=schedule, record_shapes=True
    ) as value:
        for at in range(steps + 2):
            step()
            if at == steps + 1:
                sync()
            value.step()
    return value


def slim(file: Path, out: Path, most_bytes: int = MOST_BYTES) -> dict[str, int]:
    """Writes the trace again, small: as many of its last steps as fit, at least one.

    Returns: bytes, steps and kernels of what was written.
    """
    trace = json.loads(file.read_text())
    events = [_bare(e) for e in trace["traceEvents"] if _wanted(e)]
    steps = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if _STEP.match(e["name"]))
    head = {key: trace[key] for key in
            ("schemaVersion", "deviceProperties", "baseTimeNanoseconds", "displayTimeUnit",
             "record_shapes", "with_stack") if key in trace}  # fmt: skip
    for first in range(max(1, len(steps))):
        kept = list(_since(events, steps[first][0] if steps else float("-inf")))
        text = json.dumps({**head, "traceEvents": kept}, separators=(",", ":"))
        packed = gzip.compress(text.encode(), 9, mtime=0)
        if len(packed) <= most_bytes:
            break
    out.write_bytes(packed)
    return {
        "bytes": len(packed),
        "steps": len(steps) - first,
        "kernels": sum(e["cat"] == "kernel" for e in kept),
    }


def _wanted(event: dict[str, Any]) -> bool:
    if event.get("ph") != "X" or event.get("cat") not in HOST | GPU:
        return False
    return event["cat"] not in ("cuda_runtime", "cuda_driver") or not _TRIFLE.match(event["name"])


def _bare(event: dict[str, Any]) -> dict[str, Any]:
    args = {key: event["args"][key] for key in ARGS if key in event.get("args", {})}
    bare = {
        key: event[key] for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur") if key in event
    }
    return {**bare, "args": args} if args else bare


def _since(events: list[dict[str, Any]], low_us: float) -> Iterable[dict[str, Any]]:
    """What the host did from then on, and what it launched."""
    host = [e for e in events if e["cat"] in HOST and e["ts"] >= low_us]
    launched = {e["args"].get("correlation") for e in host if "args" in e} - {None}
    gpu = [
        e for e in events if e["cat"] in GPU and e.get("args", {}).get("correlation") in launched
    ]
    return [*host, *gpu]
