"""What stays in a training script's way after brrrtop has left it.

    python benchmarks/residue.py --out DIR [--script FILE] [--turns 8] [--control] [--site DIR]

Windows of a second before the first attach; then in turns an attach with one burst, a detach, and a window.
A window's lengths of steps are told by their 2nd, 10th and 50th percentile: what is added to every launch
moves all three, what else the host does moves the last. `--control` attaches to nobody. Without a script it
is launches.py. Prints a line a window, and what a step takes after the detaches over before.
"""

from __future__ import annotations

import argparse
import json
import select
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import gpu_options  # noqa: E402
from step_log import SteppedTrainer  # noqa: E402

WARM_STEPS, WARM_S = 200, 90.0
VIRGIN_WINDOWS = 6
BURST_STEPS, BURST_S = 8, 3.0
SETTLE_S = 0.3
PERCENTILES = (2, 10, 50)


def window(trainer: SteppedTrainer, seconds: float) -> dict[str, float]:
    """Steps, and percentiles of their lengths in ms."""
    start = trainer.mark()
    time.sleep(seconds)
    lengths = trainer.durations(start, trainer.mark())[1:] / 1e6
    points = np.percentile(lengths, PERCENTILES)
    return {"steps": len(lengths)} | {
        f"p{q}": round(float(value), 4) for q, value in zip(PERCENTILES, points, strict=True)
    }


def watched(pid: int) -> dict[str, Any]:
    """An attach with one burst: how much it traced, whether whole, and whether the agent left."""
    from collectors.attach import agent_library
    from collectors.attach.attach import attach
    from collectors.protocol import requests
    from collectors.protocol.frames import Kind

    attached = attach(pid, agent_library.agent_files())
    result: dict[str, Any] = {"traced": None}
    try:
        time.sleep(0.6)  # hooks are in place after the agent's first round
        attached.client.send(requests.burst(BURST_STEPS, 1_000_000_000))
        end = time.monotonic() + BURST_S
        while time.monotonic() < end and not attached.client.closed:
            select.select([attached.client], [], [], 0.05)
            for frame in attached.client.frames():
                if frame.kind == Kind.STATUS and "traced" in frame.body:
                    result["traced"] = frame.body["traced"]
                    end = min(end, time.monotonic() + SETTLE_S)
    finally:
        result["left"] = attached.leave()
    return result


def over(before: list[dict[str, float]], after: list[dict[str, float]]) -> dict[str, float]:
    """By how much the median window of each percentile grew; 0.01 is 1 %."""
    result = {}
    for key in (f"p{q}" for q in PERCENTILES):
        first, later = (statistics.median(one[key] for one in some) for some in (before, after))
        result[key] = round(later / first - 1, 4)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_options.add(parser)
    parser.add_argument("--script", type=Path, default=HERE / "launches.py")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--window", type=float, default=1.0, help="seconds")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of turns")
    parser.add_argument("--control", action="store_true", help="attach to nobody")
    args = parser.parse_args()
    gpu_options.prepare(args)
    small = ["--device", "cpu", "--tiny"] if args.device == "cpu" else []
    trainer = SteppedTrainer(args.script, ["--seconds", "3000", *small], args.out)
    before, after, bursts = [], [], []
    try:
        if not trainer.wait_for_steps(WARM_STEPS, WARM_S):
            sys.exit(f"it does not train: {trainer.tail()}")
        for _ in range(VIRGIN_WINDOWS):
            before.append(window(trainer, args.window))
            print("before", json.dumps(before[-1]), flush=True)
        end = time.monotonic() + args.limit
        while len(after) < args.turns and time.monotonic() < end:
            if args.control:
                time.sleep(1.5)
            else:
                bursts.append(watched(trainer.pid))
            time.sleep(SETTLE_S)
            after.append(window(trainer, args.window))
            print("after", json.dumps(after[-1]), json.dumps(bursts[-1:]), flush=True)
    finally:
        trainer.kill()
    result = {"script": args.script.stem, "control": args.control, "over": over(before, after),
              "before": before, "after": after, "bursts": bursts}  # fmt: skip
    (args.out / "residue.json").write_text(json.dumps(result, indent=1))
    print(json.dumps(result["over"]))
    return 0 if all(one["left"] for one in bursts) else 1


if __name__ == "__main__":
    sys.exit(main())
