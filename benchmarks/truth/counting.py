"""Counts every kernel of a training step by CUPTI's range profiler: what ncu counts, some 20 times as fast.

    python -m benchmarks.truth.counting SCRIPT.py --out NAME.ranges.csv [--most 6000] [--warm-up 12]

ncu replays each kernel and saves memory before; here the whole step is run once a pass (nine on an
H200), so caches are as in a real step and a kernel costs one to two milliseconds a pass. Steps have to
launch the same kernels every time: two are recorded by torch.profiler afterwards, for names and
grids, and where they differ from one another or from what was counted, nothing is written.

For scripts of `benchmarks/zoo`, `blind` and `sweep`, and others that know `--ncu-step`: what their
driver does there is replaced. Columns are those of `collect.METRICS`; waves, which no counter
tells, follow from the grid and what fits on an SM, as ncu works them out.

Sources: CUPTI user's guide, "Range Profiling API" (auto range, user replay).
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import json
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.truth.collect import COLUMNS, METRICS, NCU_STEP, ZOO
from brrrtop.estimator.occupancy import blocks_per_sm
from brrrtop.tables import Device

SOURCE = Path(__file__).with_name("ranges.cpp")
WAVES = "launch__waves_per_multiprocessor"
COUNTED = tuple(metric for metric in METRICS if metric != WAVES)
DRIVERS = (("_common", "ncu_step"), ("harness", "_one_step"))
"""Modules of scripts' drivers, and the function that `--ncu-step` ends in; the step comes last."""
MOST_PASSES = 64


class Uncounted(Exception):
    """Why there are no counts."""


@dataclass(frozen=True)
class Launched:
    """One kernel as torch.profiler saw it."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: int
    shared_bytes: int


def library() -> ctypes.CDLL:
    """`ranges.cpp`, built against the CUPTI that torch has loaded."""
    torch.zeros(1, device="cuda")
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = next((line.split()[-1] for line in maps if "libcupti" in line), None)
    if loaded is None:
        raise Uncounted("torch has loaded no libcupti")
    beside = Path(loaded).parent
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "ranges.so")
        include = [f"-I{beside.parent / 'include'}", "-I/usr/local/cuda/include"]
        command = [
            "g++",
            "-shared",
            "-fPIC",
            "-O1",
            *include,
            str(SOURCE),
            loaded,
            "-o",
            str(built),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Uncounted(f"ranges.cpp does not build: {done.stderr[-300:]}")
        # CUPTI looks for the two of nvperf beside the program, not beside itself.
        for found in ("libcuda.so.1", *map(str, beside.glob("libnvperf_*.so*")), loaded):
            ctypes.CDLL(found, mode=ctypes.RTLD_GLOBAL)
        ranges = ctypes.CDLL(str(built))
    ranges.ranges_why.restype = ctypes.c_char_p
    return ranges


def counted(step: Callable[[int], object], first: int, most: int) -> tuple[list[list[float]], int]:
    """`COUNTED` of each kernel in launch order, and the number of the step after the last one run.

    Raises:
        Uncounted: CUPTI refuses, or a step has more than `most` kernels.
    """
    ranges = library()

    def must(code: int) -> None:
        if code:
            raise Uncounted(ranges.ranges_why().decode())

    names = (ctypes.c_char_p * len(COUNTED))(*(name.encode() for name in COUNTED))
    size, passes = ctypes.c_size_t, ctypes.c_size_t()
    must(ranges.ranges_open(names, size(len(COUNTED)), size(most), ctypes.byref(passes)))
    over = ctypes.c_int(0)
    for i in range(first, first + MOST_PASSES):
        must(ranges.ranges_start())
        step(i)
        torch.cuda.synchronize()
        must(ranges.ranges_stop(ctypes.byref(over)))
        if over.value:
            break
    found, dropped = ctypes.c_size_t(), ctypes.c_size_t()
    must(ranges.ranges_decode(ctypes.byref(found), ctypes.byref(dropped)))
    if dropped.value or not over.value:
        raise Uncounted(f"{dropped.value} kernels found no room: give a larger --most than {most}")
    values = (ctypes.c_double * len(COUNTED))()
    rows = []
    for index in range(found.value):
        must(ranges.ranges_read(size(index), values))
        rows.append(list(values))
    must(ranges.ranges_close())
    return rows, i + 1


def launched(step: Callable[[int], object], number: int) -> list[Launched]:
    """The kernels of one step in launch order."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        step(number)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    calls = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    kernels = [event for event in events if event.get("cat") == "kernel"]
    kernels.sort(key=lambda event: calls.get(event["args"]["correlation"], event["ts"]))
    return [_launched(event["name"], event["args"]) for event in kernels]


def _launched(name: str, args: dict[str, Any]) -> Launched:
    registers, shared = int(args["registers per thread"]), int(args["shared memory"])
    return Launched(name, tuple(args["grid"]), tuple(args["block"]), registers, shared)


def waves(kernel: Launched) -> float:
    """Of its grid: blocks over what all SMs hold at once."""
    about = torch.cuda.get_device_properties(0)
    device = Device(0, capability=(about.major, about.minor))
    threads, blocks = 1, 1
    for extent in kernel.block:
        threads *= extent
    for extent in kernel.grid:
        blocks *= extent
    held = blocks_per_sm(device, threads, kernel.registers, kernel.shared_bytes)
    return blocks / (about.multi_processor_count * held)


def write(path: Path, rows: Sequence[Sequence[float]], kernels: Sequence[Launched]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for index, (row, kernel) in enumerate(zip(rows, kernels, strict=True)):
            told = dict(zip(COUNTED, row, strict=True)) | {WAVES: waves(kernel)}
            figures = [f"{told[metric]:.4g}" for metric in METRICS]
            writer.writerow([index, kernel.name, kernel.grid, kernel.block, *figures])


def count(step: Callable[[int], object], out: Path, most: int, warm_up: int) -> None:
    """Counts a step and writes it.

    Raises:
        Uncounted: Nothing is written then.
    """
    for i in range(warm_up):
        step(i)
    torch.cuda.synchronize()
    rows, after = counted(step, warm_up, most)
    one, other = launched(step, after), launched(step, after + 1)
    if len(one) != len(rows) or [k.name for k in one] != [k.name for k in other]:
        told = f"{len(rows)} kernels counted, {len(one)} and {len(other)} in the steps after"
        raise Uncounted(f"steps launch different kernels ({told}): count them with ncu")
    write(out, rows, one)
    print(f"{len(rows)} kernels in {after - warm_up} passes", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("script", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--most", type=int, default=6000, help="kernels there is room for")
    parser.add_argument("--warm-up", type=int, default=12, help="steps before")
    args = parser.parse_args()
    folder = args.script.resolve().parent
    sys.path[:0] = [str(folder), str(ZOO)]
    out = args.out.resolve()
    for name, function in DRIVERS:
        if name == "harness" or (folder / f"{name}.py").exists():
            driver = __import__(name)
            driver = getattr(driver, "zoo", driver)
            setattr(driver, function, lambda *given: count(given[-1], out, args.most, args.warm_up))
    os.chdir(folder)
    sys.argv = [args.script.name, NCU_STEP]
    try:
        runpy.run_path(args.script.name, run_name="__main__")
    except Uncounted as error:
        raise SystemExit(f"{args.script.stem}: {error}") from None


if __name__ == "__main__":
    main()
