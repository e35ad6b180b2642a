"""Runs one training script of the zoo: train, record with torch.profiler, or one step for ncu.

python vision.py --seconds 60
python vision.py --profile-dir DIR     # NAME.trace.json.gz and NAME.meta.json
ncu --profile-from-start off … python vision.py --ncu-step
python vision.py --tiny --device cpu --steps 3
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

WARM_UP = 12
TIMED = 20
TRACED = 4
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """Where and how large a script runs."""

    device: torch.device
    tiny: bool

    def pick(self, full: T, tiny: T) -> T:
        return tiny if self.tiny else full


Step = Callable[[int], torch.Tensor]


def main(
    file: str,
    truth: dict[str, object],
    build: Callable[[Setting], Step],
    timed: int = TIMED,
    traced: int = TRACED,
) -> None:
    """Parses the command line of one script and runs it.

    Args:
        truth: What a monitor should say: `regime`, `advice`, `not_advice`.
        build: Makes the step function; called once.
        timed: Steps whose mean is the step time of a recording.
        traced: Steps of its trace.
    """
    name = Path(file).stem
    parser = argparse.ArgumentParser(prog=f"{name}.py")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--profile-dir", type=Path)
    parser.add_argument("--ncu-step", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    setting = Setting(torch.device(args.device), args.tiny)
    step = build(setting)
    if args.ncu_step:
        _one_step(step)
    elif args.profile_dir:
        _record(name, truth, step, args.profile_dir, timed, traced)
    else:
        _train(step, args.seconds, args.steps)


def _train(step: Step, seconds: float, steps: int | None) -> None:
    start = last = time.perf_counter()
    i = printed = 0
    while (steps is None or i < steps) and time.perf_counter() - start < seconds:
        loss = step(i)
        i += 1
        now = time.perf_counter()
        if now - last >= 1.0:
            print(
                f"step={i} it/s={(i - printed) / (now - last):.2f} loss={float(loss):.4f}",
                flush=True,
            )
            last, printed = time.perf_counter(), i
    print(f"step={i} loss={float(loss):.6f}", flush=True)


def _one_step(step: Step) -> None:
    for i in range(WARM_UP):
        step(i)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    step(WARM_UP)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _record(
    name: str, truth: dict[str, object], step: Step, folder: Path, timed: int, traced: int
) -> None:
    from torch.profiler import ProfilerActivity, profile, schedule

    folder.mkdir(parents=True, exist_ok=True)
    for i in range(WARM_UP):
        step(i)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for i in range(timed):
        step(WARM_UP + i)
    torch.cuda.synchronize()
    step_ms = (time.perf_counter() - began) * 1000 / timed
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        schedule=schedule(wait=0, warmup=2, active=traced, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(folder / f"{name}.trace.json.gz")),
        record_shapes=True,
    ) as profiler:
        for i in range(2 + traced):
            step(WARM_UP + timed + i)
            if i == 1:
                torch.cuda.synchronize()
            profiler.step()
    facts = {
        "name": name, "truth": truth, "step_ms": step_ms, "torch": torch.__version__,
        "device": torch.cuda.get_device_name(), "python": sys.version.split()[0],
        "max_memory_bytes": torch.cuda.max_memory_allocated(),
    }  # fmt: skip
    (folder / f"{name}.meta.json").write_text(json.dumps(facts, indent=1))
