"""Runs a training script unmodified and writes down when each of its steps ended.

    python benchmarks/stepped.py --log FILE [--cupti-from DIR] script.py [its arguments]

FILE is mapped by this process and by the one that measures it. 64 words of 8 bytes come first:
steps counted, then a number and code of the order last given, then the number last obeyed, with
the step count, time and outcome. After them lie the ends of the steps, as CLOCK_MONOTONIC in ns.
"""

from __future__ import annotations

import argparse
import mmap
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WORDS, SLOTS = 64, 1 << 20
COUNT, ORDER, CODE, OBEYED, AT_COUNT, AT_NS, OUTCOME = range(7)
SYNC, PROFILER_ON, PROFILER_OFF, CUPTI_ON, CUPTI_OFF = range(1, 6)


class Profiler:
    """`torch.profiler` without a schedule: everything from start to stop."""

    def __init__(self) -> None:
        self._running: Any = None

    def start(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        self._running = profile(activities=both if torch.cuda.is_available() else both[:1])
        self._running.start()

    def stop(self) -> None:
        running, self._running = self._running, None
        running.stop()
        import torch

        events = running.profiler.kineto_results.events()
        cuda = torch.autograd.DeviceType.CUDA
        if torch.cuda.is_available() and not any(e.device_type() == cuda for e in events):
            raise RuntimeError("torch.profiler recorded nothing on the device")


class InProcessCupti:
    """What the documentation of cupti-python shows: kernel records, by Python callbacks."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self.records = 0

    def start(self) -> None:
        if self._folder and self._folder not in sys.path:
            sys.path.append(self._folder)
        from cupti import cupti

        cupti.activity_register_callbacks(lambda: (8 << 20, 0), self._completed)
        cupti.activity_enable(cupti.ActivityKind.CONCURRENT_KERNEL)

    def _completed(self, activities: list[Any]) -> None:
        self.records += len(activities)

    def stop(self) -> None:
        from cupti import cupti

        cupti.activity_disable(cupti.ActivityKind.CONCURRENT_KERNEL)
        cupti.activity_flush_all(0)
        cupti.finalize()
        if not self.records:
            raise RuntimeError("cupti-python delivered no records")


class Log:
    """The mapped file, and the optimizer hook that writes into it."""

    def __init__(self, path: Path, cupti_from: str | None) -> None:
        with path.open("r+b") as file:
            self._words = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        self._steps_by: int | None = None
        profiler, inside = Profiler(), InProcessCupti(cupti_from)
        self._acts: dict[int, Callable[[], None]] = {
            SYNC: lambda: None, PROFILER_ON: profiler.start, PROFILER_OFF: profiler.stop,
            CUPTI_ON: inside.start, CUPTI_OFF: inside.stop,
        }  # fmt: skip

    def stepped(self, optimizer: object, *_: object) -> None:
        """Takes down one step; with several optimizers, the one seen first is the step."""
        if self._steps_by is None:
            self._steps_by = id(optimizer)
        elif self._steps_by != id(optimizer):
            return
        words = self._words
        count = words[COUNT]
        words[WORDS + count % SLOTS] = time.perf_counter_ns()
        words[COUNT] = count + 1
        if words[ORDER] != words[OBEYED]:
            self._obey(count + 1)

    def _obey(self, count: int) -> None:
        import torch

        words, outcome = self._words, 0
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        try:
            self._acts[words[CODE]]()
        except Exception as fault:  # the script is to go on whatever a rival does
            print(f"stepped: order {words[CODE]}: {type(fault).__name__}: {fault}", file=sys.stderr)
            outcome = 1
        words[OUTCOME], words[AT_COUNT], words[AT_NS] = outcome, count, time.perf_counter_ns()
        words[OBEYED] = words[ORDER]


def hook_optimizers(hook: Callable[..., None]) -> None:
    """Has each optimizer made from now on call `hook` after its step, before torch's global hooks."""
    from torch.optim import Optimizer

    make = Optimizer.__init__

    def made(self: Any, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        self.register_step_post_hook(hook)

    Optimizer.__init__ = made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--cupti-from", help="a folder with cupti-python, to append to the path")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    hook_optimizers(Log(given.log, given.cupti_from).stepped)
    sys.argv = [given.script, *given.arguments]
    sys.path[0] = str(Path(given.script).resolve().parent)
    runpy.run_path(given.script, run_name="__main__")


if __name__ == "__main__":
    main()
