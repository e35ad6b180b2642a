"""One model in one process: measures its loop with each edit, then traces it and has it watched live.

    python -m benchmarks.gains.worker NAME --parts base,compile,…,trace,live --cpus 0-15 --out DIR

Started by `measure`, which it asks for the GPU: a JSON line `{"ask": …}` on stdout is answered by a line on
stdin, and from then until its next line no other process of that GPU runs.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIVE_S = 8.0


class Parent:
    """The two ends of the pipe to `measure`; what libraries print goes to stderr instead."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

    def tell(self, **facts: Any) -> None:
        self._out.write(json.dumps(facts) + "\n")

    def alone(self, part: str, limit_s: float) -> None:
        """Returns once no other process runs on the GPU. Whatever is told next ends that."""
        self.tell(ask=part, limit_s=limit_s)
        if not sys.stdin.readline():
            raise SystemExit("measure is gone")


def one(parent: Parent, name: str, edit: str, args: argparse.Namespace) -> dict[str, Any]:
    """The step time with an edit made."""
    import torch

    from benchmarks.gains import timing
    from benchmarks.gains.loops import make

    began = time.perf_counter()
    compiles = "compile" in edit
    step, tools = make(name, edit, args.device, args.tiny)
    steps = timing.warm(step, compiles)
    warm_s = time.perf_counter() - began
    parent.alone(edit or "base", limit_s=20)
    found = timing.measured(step, args.seconds, tools.public.period)
    parent.tell(release=True)
    found |= {"batch": tools.batch, "warm_s": round(warm_s, 1), "warm_steps": steps}
    if compiles:
        from torch._dynamo.utils import counters

        found["graphs"] = counters["stats"]["unique_graphs"]
        found["breaks"] = sum(counters["graph_break"].values())
        found["cudagraph_skips"] = counters["inductor"]["cudagraph_skips"]
    if torch.cuda.is_available():
        found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return found


def trace(parent: Parent, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """A slim Kineto trace of the base loop."""
    from benchmarks.gains import timing, tracing
    from benchmarks.gains.loops import make

    step, _ = make(name, "", args.device, args.tiny)
    timing.warm(step, compiles=False)
    whole = args.out / f"{name}.whole.json"
    parent.alone("trace", limit_s=40)
    began = time.perf_counter()
    profiled = tracing.profile(step, 4)
    parent.tell(release=True)
    spent = time.perf_counter() - began
    profiled.export_chrome_trace(str(whole))
    try:
        found = tracing.slim(whole, args.out / f"{name}.trace.json.gz")
    finally:
        whole.unlink()
    return {**found, "profile_s": round(spent, 2)}


def live(parent: Parent, name: str, args: argparse.Namespace) -> dict[str, Any]:
    """A recording of the base loop in a process of its own, by `brrrtop attach`."""
    file = args.out / f"{name}.brrr"
    loop = [
        sys.executable,
        "-m",
        "benchmarks.gains.loop",
        name,
        "--wait",
        *(["--tiny"] if args.tiny else []),
    ]
    with subprocess.Popen(
        loop, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdout is not None and trainer.stdin is not None
        try:
            if not any(line.startswith("READY") for line in trainer.stdout):
                raise RuntimeError(f"the loop ended with {trainer.wait()}")
            parent.alone("live", limit_s=LIVE_S + 30)
            trainer.stdin.write("go\n")
            trainer.stdin.flush()
            trainer.stdout.readline()  # the first second of steps
            found = watched(trainer.pid, file, args.attach.split())
            found["alive"] = trainer.poll() is None
            trainer.terminate()
            trainer.wait(10)
            parent.tell(release=True)
        finally:
            trainer.kill()
    if not file.exists():
        raise RuntimeError(f"no recording: {found}")
    return {**found, "bytes": file.stat().st_size}


def watched(pid: int, file: Path, options: list[str]) -> dict[str, Any]:
    """brrrtop's last report of a trainer, and what it said on stderr."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("GAINS_MONITOR_PATH")]))
    command = [sys.executable, "-m", "brrrtop", "attach", str(pid), "--yes", "--json", "--interval", "1",
               "--record", str(file), *options]  # fmt: skip
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as monitor:  # fmt: skip
        try:
            out, said = monitor.communicate(timeout=LIVE_S + 3)
        except subprocess.TimeoutExpired:
            monitor.send_signal(signal.SIGINT)
            try:
                out, said = monitor.communicate(timeout=12)
            except subprocess.TimeoutExpired:
                monitor.kill()
                out, said = monitor.communicate()
    lines = out.splitlines()
    report = json.loads(lines[-1]) if lines else {}
    kept = ("window", "split", "regime", "confidence", "whatif", "losses")
    advice = [(a["id"], a.get("saves_at_most")) for a in report.get("advisories") or ()]
    facts = {key: report[key] for key in kept if key in report}
    return {
        "exit": monitor.returncode,
        "said": said[-400:],
        "report": {**facts, "advisories": advice},
    }


def cpus(text: str) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


def clean() -> None:
    """Lets go of a loop: its memory, its graphs, what was compiled."""
    import torch

    gc.collect()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def attempted(parent: Parent, part: str, args: argparse.Namespace) -> dict[str, Any]:
    """What a part found, or why it failed. Out of memory is tried again: others may have held it."""
    for left in (2, 1, 0):
        try:
            if part == "trace":
                return trace(parent, args.name, args)
            if part == "live":
                return live(parent, args.name, args)
            return one(parent, args.name, "" if part.startswith("base") else part, args)
        except Exception as fault:
            reason = f"{type(fault).__name__}: {str(fault)[:600]}"
        parent.tell(release=True)
        if "out of memory" not in reason.lower() or not left:
            return {"failed": reason}
        clean()
        time.sleep(10)
    raise AssertionError("unreachable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--parts", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpus", type=cpus)
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--attach", default="")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    parent = Parent()
    if args.cpus:
        os.sched_setaffinity(0, args.cpus)
    import torch

    args.device = torch.device("cuda" if torch.cuda.is_available() and not args.tiny else "cpu")
    broken: dict[str, Any] = {}
    for part in args.parts.split(","):
        parent.tell(begin=part)
        found = broken or attempted(parent, part, args)
        if part == "base" and "failed" in found:
            broken = {"failed": f"the base loop fails: {found['failed']}"}
        if part != "live":
            clean()
        parent.tell(part=part, **found)
        if "CUDA error" in found.get("failed", ""):
            raise SystemExit("nothing more can be done in this process")  # a new one goes on


if __name__ == "__main__":
    main()
