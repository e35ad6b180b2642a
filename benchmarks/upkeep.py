"""What the agent and the gauges cost a trainer beside bursts: each part on and off, in short turns.

    python benchmarks/upkeep.py --script zoo/tiny_mlp.py --out DIR [--part gauges --part agent] [--turns 40]
        [--slice 0.5] [--device cuda|cpu]

gauges  NVML and GPM read by this process and not, without an agent
agent   attached without bursts (marks and samples of the training thread's stack), and left

Cost of a part: mean over the turns of the step time with it over the mean of the two slices without it around
it, less 1, with a 95 % bootstrap interval. A slice begins `--settle` after the switch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import stepped  # noqa: E402
from paired import between  # noqa: E402
from step_log import SteppedTrainer  # noqa: E402

from collectors.attach import agent_library  # noqa: E402
from collectors.attach.attach import Attached, attach  # noqa: E402
from collectors.gpu.sampler_thread import GaugeThread  # noqa: E402

PARTS = ("gauges", "agent")


def step_ns(trainer: SteppedTrainer, settle_s: float, slice_s: float) -> float:
    time.sleep(settle_s)
    first = trainer.count
    time.sleep(slice_s)
    slots = stepped.WORDS + np.arange(first, trainer.count) % stepped.SLOTS
    lengths = np.diff(np.asarray(trainer._words[slots]))
    if not len(lengths):
        raise RuntimeError(f"{trainer.name}: steps are longer than a slice")
    return float(lengths.mean())


class Switches:
    """How each part is switched."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.gauges: GaugeThread | None = None
        self.agent: Attached | None = None

    def switch_gauges(self, on: bool) -> None:
        if on:
            self.gauges = GaugeThread(self.pid)
            self.gauges.start()
        elif self.gauges is not None:
            self.gauges.close()
            self.gauges = None

    def switch_agent(self, on: bool) -> None:
        if on:
            self.agent = attach(self.pid, agent_library.agent_files())
        elif self.agent is not None:
            self.agent.leave()
            self.agent = None


def measure(trainer: SteppedTrainer, part: str, args: argparse.Namespace) -> str:
    switches = Switches(trainer.pid)
    switch: Callable[[bool], None] = getattr(switches, f"switch_{part}")
    off, on = [], []
    try:
        for _ in range(args.turns):
            switch(False)
            off.append(step_ns(trainer, args.settle, args.slice))
            switch(True)
            on.append(step_ns(trainer, args.settle, args.slice))
        switch(False)
        off.append(step_ns(trainer, args.settle, args.slice))
    finally:
        switches.switch_gauges(False)
        switches.switch_agent(False)
    return f"{trainer.name}: {part} {between(off, on)} of {np.median(off) / 1e6:.3f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--script", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--slice", type=float, default=0.5)
    parser.add_argument("--settle", type=float, default=0.2)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    small = ["--device", "cpu", "--tiny"] if args.device == "cpu" else []
    for script in args.script:
        trainer = SteppedTrainer(script, ["--seconds", "3000", *small], args.out)
        try:
            if not trainer.wait_for_steps(30, 120):
                print(trainer.name, "does not train:", trainer.tail(), flush=True)
                continue
            time.sleep(2)
            for part in args.part or PARTS:
                print(measure(trainer, part, args), flush=True)
        finally:
            trainer.kill()


if __name__ == "__main__":
    main()
