"""Watches both ranks of distributed jobs: attach and detach beside an unwatched run, and recordings.

    python benchmarks/ranks.py --out DIR [--cycles 120] [--limit 45] [--record 20] [--site DIR]
        [--device cuda|cpu]

Two runs of the same deterministic DDP job go on side by side; both ranks of one are attached to and
detached from all the time, at once. The losses of each rank must be bit-identical in both. Then, one after the
other, each rank is recorded of a balanced DDP job, of one whose rank 1 sleeps for 24 ms in each step, and of an
FSDP job that does so: DIR/ddp-balanced-rank0.brrr and so on. Writes DIR/ranks.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import gpu_options  # noqa: E402
import soak  # noqa: E402
import soak_compare  # noqa: E402
from step_log import trainer_environment  # noqa: E402
from watched import ROOT, monitor_environment  # noqa: E402

RANKS = 2
START_LIMIT_S = 90.0
JOBS = {
    "ddp-balanced": ["ddp"],
    "ddp-slow": ["ddp", "--slow", "1"],
    "fsdp-slow": ["fsdp", "--slow", "1"],
}


class Job:
    """A job of two ranks under torchrun."""

    def __init__(self, name: str, words: list[str], args: argparse.Namespace) -> None:
        self.name, self.folder = name, (args.out / "jobs" / name).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                   str(RANKS), str(HERE / "ranks_trainer.py"), *words, "--folder", str(self.folder),
                   "--device", args.device]  # fmt: skip
        env = trainer_environment() | {"OMP_NUM_THREADS": "1"}
        with (self.folder / "said").open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )

    def pids(self) -> list[int]:
        """Of its ranks, once they are warm.

        Raises:
            RuntimeError: They are not.
        """
        files = [self.folder / f"rank{rank}.pid" for rank in range(RANKS)]
        end = time.monotonic() + START_LIMIT_S
        while not all(file.exists() and file.read_text() for file in files):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} does not train: {self.tail()}")
            time.sleep(0.05)
        return [int(file.read_text()) for file in files]

    def go(self) -> list[int]:
        pids = self.pids()
        (self.folder / "go").touch()
        return pids

    def losses(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.f4"

    def has_losses(self) -> bool:
        files = [self.losses(rank) for rank in range(RANKS)]
        return all(file.exists() and file.stat().st_size > 4 * soak.LEAST_LOSSES for file in files)

    def alive(self) -> bool:
        return self.process.poll() is None

    def tail(self) -> str:
        return (self.folder / "said").read_text("utf-8", "replace")[-600:]

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for file in self.folder.glob("rank*.pid"):  # torchrun's ranks are groups of their own
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        self.process.wait()


def torment(pid: int, count: int, limit_s: float) -> dict[str, Any]:
    """Attaches and detaches that often; in a process of its own for each rank."""
    failures, buffered, kernels, done = Counter[str](), [], 0, 0
    end = time.monotonic() + limit_s
    while done < count and time.monotonic() < end:
        done += 1
        try:
            stopped_ns, seen = soak.one_cycle(pid, done)
            buffered.append(stopped_ns)
            kernels += seen
        except Exception as fault:
            failures[f"{type(fault).__name__}: {fault}"] += 1
    return {
        "cycles": done, "failures": dict(failures), "kernels": kernels,
        "held_ms": statistics.median(buffered) / 1e6 if buffered else None,
        "held_most_ms": max(buffered) / 1e6 if buffered else None,
    }  # fmt: skip


def cycles(args: argparse.Namespace) -> dict[str, Any]:
    """Both ranks of one job; its twin is left alone."""
    alone, watched = jobs = Job("unwatched", ["exact"], args), Job("watched", ["exact"], args)
    try:
        alone.go()
        pids = watched.go()
        end = time.monotonic() + START_LIMIT_S
        while not all(job.has_losses() for job in jobs):
            if time.monotonic() > end or not (alone.alive() and watched.alive()):
                raise RuntimeError(f"no losses: {alone.tail()} {watched.tail()}")
            time.sleep(0.05)
        with multiprocessing.get_context("fork").Pool(RANKS) as pool:
            results = pool.starmap(torment, [(pid, args.cycles, args.limit) for pid in pids])
        sizes = [watched.losses(rank).stat().st_size for rank in range(RANKS)]
        time.sleep(1)
        moving = all(watched.losses(r).stat().st_size > size for r, size in enumerate(sizes))
        alive = alone.alive() and watched.alive()
    finally:
        for job in jobs:
            job.kill()
    same = [soak_compare.losses(alone.losses(r), watched.losses(r)) for r in range(RANKS)]
    good = alive and moving and all(one["identical"] for one in same)
    good = good and not any(rank["failures"] for rank in results)
    return {
        "ranks": results,
        "losses": same,
        "alive": alive,
        "still_training": moving,
        "good": good,
    }


def record(name: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Both ranks at once, by the command line; no other job is there."""
    job = Job(name, JOBS[name], args)
    try:
        pids = job.go()
        time.sleep(1.5)
        running = [_monitor(job, rank, pid, args) for rank, pid in enumerate(pids)]
        time.sleep(args.record)
        for monitor in running:
            monitor.send_signal(signal.SIGINT)
        result = []
        for rank, monitor in enumerate(running):
            try:
                monitor.wait(15)
            except subprocess.TimeoutExpired:
                monitor.kill()
                monitor.wait()
            lines = (job.folder / f"report{rank}").read_text().splitlines()
            last = json.loads(lines[-1]) if lines else {}
            kept = {key: last.get(key) for key in ("window", "split", "regime", "confidence")}
            text = (job.folder / f"monitor{rank}").read_text()[-300:]
            result.append({"exit": monitor.returncode, "said": text, "report": kept,
                          "reports": len(lines)})  # fmt: skip
        if not job.alive():
            result.append({"failed": job.tail()})
        return result
    finally:
        job.kill()


def _monitor(job: Job, rank: int, pid: int, args: argparse.Namespace) -> subprocess.Popen[bytes]:
    file = (args.out / f"{job.name}-rank{rank}.brrr").resolve()
    command = [sys.executable, "-m", "brrrtop", "attach", str(pid), "--yes", "--json", "--interval", "1",
               "--no-shapes", "--record", str(file)]  # fmt: skip
    with (
        (job.folder / f"report{rank}").open("wb") as out,
        (job.folder / f"monitor{rank}").open("wb") as text,
    ):
        return subprocess.Popen(
            command, cwd=ROOT, env=monitor_environment(args.site), stdout=out, stderr=text
        )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_options.add(parser)
    parser.add_argument("--cycles", type=int, default=120, help="on each rank")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds of the cycles")
    parser.add_argument("--record", type=float, default=20.0, help="seconds of each recording")
    args = parser.parse_args()
    gpu_options.prepare(args)
    from collectors import native

    native.agent_files()  # built once
    result: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {"cycles": lambda: cycles(args)} if args.cycles else {}
    if args.record:
        parts |= {name: lambda name=name: record(name, args) for name in JOBS}
    for name, does in parts.items():
        try:
            result[name] = does()
        except Exception as fault:
            result[name] = {"error": f"{type(fault).__name__}: {fault}", "good": False}
        print(f"{name}: {json.dumps(result[name])}", flush=True)
        (args.out / "ranks.json").write_text(json.dumps(result, indent=1))
    good = all(isinstance(one, list) or one["good"] for one in result.values())
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
