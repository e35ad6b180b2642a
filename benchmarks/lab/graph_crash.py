"""Which of the agent's acts kills a trainer that replays CUDA graphs, and where it dies.

    python benchmarks/lab/graph_crash.py --out DIR --case bursts|continuous|attach|kernels|calls [--seconds 100]

A trainer that replays graphs (`soak_trainer.py busy --graphs`) runs with a signal handler that prints
native frames. Per case:

bursts      one attach, then short bursts of everything without pause
kernels     the same with kernels and copies alone, no API rows
calls       the same with API rows alone
attach      attach and detach without pause, nothing traced
cycles      attach, trace a moment, detach, as `soak.py --parts graphs` did when a trainer died
plain       nothing at all beside the trainer

After a crash the trainer is started again until the time is up. Prints how often it did what, and each crash.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from tormented import Tormented  # noqa: E402

CASES = {
    "bursts": "everything", "kernels": "kernels", "calls": "calls", "attach": None, "cycles": "everything", "plain": None,
}  # fmt: skip


def handler(folder: Path) -> Path:
    built = folder / "crash.so"
    source = str(HERE / "crash.c")
    subprocess.run(
        ["cc", "-O1", "-g", "-shared", "-fPIC", "-o", str(built), source, "-ldl"], check=True
    )
    return built


def wishes(case: str) -> bytes:
    from collectors import control
    from collectors.control import Wanted

    rows = Wanted.LAUNCHES | Wanted.SYNCS
    activity = Wanted.KERNELS | Wanted.COPIES
    chosen = {"everything": rows | activity, "kernels": activity, "calls": rows}[
        CASES[case] or "everything"
    ]
    return control.kinds(chosen | Wanted.GRAPHS)


def bursts(trainer: Tormented, case: str, end: float, done: dict[str, int]) -> str | None:
    """Bursts in one attach until the end, or what went wrong."""
    from collectors import control, native
    from collectors.attach import attach
    from collectors.wire import Kind

    attached = attach(trainer.pid, native.agent_files())
    try:
        attached.client.send(wishes(case))
        while time.monotonic() < end:
            attached.client.send(control.burst(0, random.randrange(1_000_000, 12_000_000)))
            over = time.monotonic() + 1.0
            while time.monotonic() < over and not attached.client.closed:
                select.select([attached.client], [], [], 0.05)
                frames = attached.client.frames()
                done["kernels"] += sum(len(f.body) for f in frames if f.kind == Kind.KERNELS)
                if any(f.kind == Kind.STATUS and "traced" in f.body for f in frames):
                    done["bursts"] += 1
                    break
            wrong = trainer.look()
            if wrong:
                return wrong
            if random.random() < 0.3:
                time.sleep(random.uniform(0, 0.02))
    finally:
        attached.leave()
    return None


def attaches(trainer: Tormented, case: str, end: float, done: dict[str, int]) -> str | None:
    from collectors import control, native
    from collectors.attach import attach
    from collectors.wire import Kind

    while time.monotonic() < end:
        attached = attach(trainer.pid, native.agent_files())
        try:
            if case == "cycles":
                attached.client.send(wishes(case))
                odd = done["attaches"] % 2
                attached.client.send(
                    control.continuous(True) if odd else control.burst(2, 50_000_000)
                )
                over = time.monotonic() + random.uniform(0, 0.08)
                while time.monotonic() < over and not attached.client.closed:
                    select.select([attached.client], [], [], 0.01)
                    frames = attached.client.frames()
                    done["kernels"] += sum(len(f.body) for f in frames if f.kind == Kind.KERNELS)
        finally:
            attached.leave()
        done["attaches"] += 1
        wrong = trainer.look()
        if wrong:
            return wrong
    return None


def plain(trainer: Tormented, case: str, end: float, done: dict[str, int]) -> str | None:
    while time.monotonic() < end:
        time.sleep(0.2)
        if wrong := trainer.look():
            return wrong
    return None


def torment(case: str, out: Path, seconds: float, device: str, without: bool) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    preload = str(handler(out))
    graphs = ["--graphs"] if device == "cuda" and not without else []
    end = time.monotonic() + seconds
    done = {"bursts": 0, "attaches": 0, "kernels": 0, "trainers": 0}
    crashes: list[str] = []
    way = {"attach": attaches, "cycles": attaches, "plain": plain}.get(case, bursts)
    while time.monotonic() < end and done["trainers"] < 8:
        done["trainers"] += 1
        os.environ["LD_PRELOAD"] = preload
        trainer = Tormented(out, f"{case}{done['trainers']}", ["busy", "--device", device, *graphs])
        del os.environ["LD_PRELOAD"]
        try:
            trainer.wait_for(100, 90)
            wrong = way(trainer, case, end, done)
        except Exception as fault:
            time.sleep(0.5)
            wrong = f"{type(fault).__name__}: {fault}; exit {trainer.process.poll()}"
        finally:
            trainer.kill()
        if wrong:
            said = trainer.said.read_text("utf-8", "replace")
            at = said.find("=== crash")
            crashes.append(f"{wrong[:300]}\n{said[at : at + 6000] if at >= 0 else said[-1500:]}")
    return {"case": case, "seconds": seconds, **done, "crashes": crashes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", choices=tuple(CASES), action="append", required=True)
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--no-graphs", action="store_true", help="a trainer that has none")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    args = parser.parse_args()
    for case in args.case:
        found = torment(case, args.out / case, args.seconds, args.device, args.no_graphs)
        crashes = found.pop("crashes")
        print(json.dumps(found), flush=True)
        for crash in crashes:
            print(f"--- {case}\n{crash}", flush=True)


if __name__ == "__main__":
    main()
