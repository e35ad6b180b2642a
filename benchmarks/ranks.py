"""Watches all ranks of a job as a user does: what it costs, who is named as late and why, and how soon.

    python benchmarks/ranks.py --out DIR [--results DIR] [--limit 560] [--site DIR]
        [--device cuda|cpu] [--ranks 2] [--parts overhead-ddp,plants-ddp,…]

overhead  the job is watched (`brrrtop attach` of one rank) and left alone in turns; the trainers take their own
          step times; nobody may be named here either
balanced  nothing is planted, and nobody may be named
plants    a sleep, a slow loader, more work, a neighbour on the GPU: on one rank each, a fresh attach each, until
          that rank is named with that cause
cycles    both ranks are attached to and detached from all the time, at once, while a twin of the job runs
          unwatched: the losses of each rank must be bit-identical

Each part is a line of ranks.jsonl, written as soon as it is there; recordings of the plants are in
recordings.tar. Nothing takes longer than --limit seconds in all. The exit code is 1 where a bar was missed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import gpu_options  # noqa: E402
import paired  # noqa: E402
import ranks_plan  # noqa: E402
import soak  # noqa: E402
import soak_compare  # noqa: E402
from overhead import machine  # noqa: E402
from ranks_job import START_LIMIT_S, Job, Neighbour  # noqa: E402
from ranks_monitor import Monitor  # noqa: E402
from ranks_plan import LOG_STEPS  # noqa: E402

NAMED_LIMIT_S, COST, CPU_SHARE, RSS_BYTES = 15.0, 0.01, 0.15, 250e6
"""What must be reached."""
KINDS = {
    "sleep": (ranks_plan.SLEEP, "host"),
    "loader": (ranks_plan.LOADER, "input"),
    "work": (ranks_plan.WORK, "more-work"),
    "neighbour": (ranks_plan.NEIGHBOUR, "other_process"),
}
"""By plant: its number, and the cause that must be named."""
PLANTS = {
    "ddp": [("sleep", -1), ("loader", 1), ("work", -2), ("neighbour", 0), ("sleep", 0), ("loader", -1)],
    "fsdp": [("work", 0), ("sleep", -1), ("neighbour", 1), ("loader", -2)],
}  # fmt: skip
"""Kind and rank; -1 is the last rank."""
LATE_S = 0.025
"""By which a host is late beyond a step: what is shorter than the GPU's work hides behind it."""
SETTLE_S, LINGER_S = 0.5, 0.5
FAIR = {"ddp": 0.36, "fsdp": 0.18}
"""Part of all the time that the overhead of each job may take, but for the least pairs."""
LEAST_PAIRS = 4
ON_STEPS, OFF_STEPS = 3 * LOG_STEPS, 2 * LOG_STEPS
"""Every `LOG_STEPS` the trainer reads its loss, which costs more than what is to be measured."""
PAIR_S = 22.0
BALANCED, BALANCED_S = 5, 7.0
CYCLES_S = 40.0
AFTER_S = 25.0
"""Left to the last part."""
LEAST_CYCLES_S = 8.0


class Bench:
    """The jobs, and the time that is left.

    Args:
        args: Of the command line.
        tell: Takes a row as soon as it is there.
    """

    def __init__(self, args: argparse.Namespace, tell: Callable[[dict[str, Any]], None]) -> None:
        self.args, self.tell = args, tell
        self.began_s = time.monotonic()
        self.jobs: dict[str, Job] = {}
        self.neighbours: dict[int, Neighbour] = {}
        """By number of the plant that each is."""
        self.monitors: list[Monitor] = []
        self.attached = 0
        self.pool: Any = None
        """Of processes that attach and detach."""
        self.after_s = AFTER_S if "cycles" in args.parts else 0.0

    @property
    def left_s(self) -> float:
        return self.began_s + self.args.limit - time.monotonic()

    def job(self, name: str) -> Job:
        """That job, training; started again where it died.

        Raises:
            RuntimeError: It does not train.
        """
        job = self.jobs.get(name)
        if job is None or not job.alive():
            if job is not None:
                job.kill()
            job = self.jobs[name] = Job(name, name.split("-")[0], self.args)
        if not job.pids:
            job.go()
        return job

    def preload(self, names: list[str]) -> None:
        for name in names:
            self.jobs[name] = Job(name, name.split("-")[0], self.args)

    def end_job(self, name: str) -> None:
        job = self.jobs.pop(name, None)
        if job is not None:
            job.kill()

    def watch(self, job: Job, *words: str) -> Monitor:
        """Attaches by the id of one rank or the other, in turns."""
        self.attached += 1
        errors = self.args.out / f"monitor{self.attached}.err"
        pid = job.pids[self.attached % job.ranks]
        monitor = Monitor(pid, self.args, errors, words)
        self.monitors.append(monitor)
        return monitor

    def end(self) -> None:
        if self.pool is not None:  # or its processes write to nobody
            self.pool.terminate()
        for one in (*self.monitors, *self.neighbours.values()):
            one.kill()
        for name in list(self.jobs):
            self.end_job(name)


# --- what it costs -------------------------------------------------------------------------------


def overhead(bench: Bench, kind: str) -> dict[str, Any]:
    """Off, on, off, …, off: a fresh monitor each time, which nobody may be named by."""
    job = bench.job(kind)
    end_s = time.monotonic() + min(FAIR[kind] * bench.args.limit, bench.left_s - bench.after_s)
    time.sleep(SETTLE_S)
    offs, ons, watched = (
        [_means(job.window(OFF_STEPS))],
        list[list[float]](),
        list[dict[str, Any]](),
    )
    while time.monotonic() + PAIR_S < end_s or (
        len(ons) < LEAST_PAIRS and bench.left_s - bench.after_s > PAIR_S
    ):
        file = bench.args.out / f"{kind}-watched{len(ons)}.brrr"
        entering = [log.mark() for log in job.logs]
        monitor = bench.watch(job, *(["--record", str(file)] if len(ons) % 2 else []))
        compared_s = monitor.wait_until_compared(NAMED_LIMIT_S)
        time.sleep(SETTLE_S)
        entered = [log.mark() for log in job.logs]
        cpu_s, at_s, threads = monitor.cpu_s(), time.perf_counter(), monitor.threads_s()
        means = _means(job.window(ON_STEPS))
        cpu_after_s, took_s = monitor.cpu_s(), time.perf_counter() - at_s
        rss, threads_after = monitor.rss_bytes(), monitor.threads_s()
        whole = monitor.stop()
        time.sleep(SETTLE_S)
        if cpu_s is None or cpu_after_s is None or compared_s is None:
            bench.tell({"part": f"overhead-{kind}", "failed": whole})
            if not job.alive():
                raise RuntimeError(f"the job died: {job.tail()}")
            continue
        ons.append(means)
        offs.append(_means(job.window(OFF_STEPS)))
        share = (cpu_after_s - cpu_s) / took_s
        by_thread = [(threads_after[one] - threads.get(one, 0)) / took_s for one in threads_after]
        first_look = [
            (end.time_ns - start.time_ns) / 1e6 - (end.count - start.count) * off
            for start, end, off in zip(entering, entered, offs[-2], strict=True)
        ]
        watched.append({"on_ms": means, "off_ms": offs[-1], "cpu": share, "rss": rss,
                        "threads": by_thread, "first_look_ms": first_look, **whole})  # fmt: skip
        bench.tell({"part": f"overhead-{kind}", "pair": len(ons), **watched[-1]})
    costs = [
        paired.between([one[rank] for one in offs], [one[rank] for one in ons])
        for rank in range(job.ranks)
    ]
    named = [n for one in watched for n in one["named"] if n["rank"] is not None]
    cpu = [one["cpu"] for one in watched]
    rss_most = max((one["rss"] or 0 for one in watched), default=0)
    good = all(cost is not None and cost.mean <= COST for cost in costs) and not named
    good = good and max(cpu, default=1.0) <= CPU_SHARE and rss_most <= RSS_BYTES
    return {
        "step_ms": offs[0], "cost": [cost and cost.to_json() for cost in costs],
        "slowest": max((cost.mean for cost in costs if cost), default=None),
        "first_look_ms": [one["first_look_ms"] for one in watched],
        "cpu": cpu, "rss_most": rss_most, "watched": len(watched), "named": named, "good": good,
    }  # fmt: skip


def _means(windows: list[Any]) -> list[float]:
    return [window.mean_ns / 1e6 for window in windows]


def balanced(bench: Bench, kind: str) -> dict[str, Any]:
    """Fresh attaches while all keep pace."""
    rows = []
    for number in range(BALANCED):
        if bench.left_s < BALANCED_S + 8:
            break
        job = bench.job(kind)
        time.sleep(SETTLE_S)
        file = bench.args.out / f"{kind}-balanced{number}.brrr"
        monitor = bench.watch(job, "--record", str(file))
        monitor.wait_until_named(-1, "", BALANCED_S)
        rows.append(monitor.stop())
        bench.tell({"part": f"balanced-{kind}", **rows[-1]})
        keep(bench.args)
    named = [n for one in rows for n in one["named"] if n["rank"] is not None]
    compared = [one["compared_s"] for one in rows]
    good = len(rows) == BALANCED and not named and None not in compared
    return {"attaches": len(rows), "compared_s": compared, "named": named, "good": good}


# --- who is late ---------------------------------------------------------------------------------


def plants(bench: Bench, kind: str, only: str = "") -> dict[str, Any]:
    """One after the other, with a moment of peace between them."""
    rows = []
    chosen = [
        (plant, rank % bench.args.ranks)
        for plant, rank in PLANTS[kind]
        if (bench.args.device == "cuda" or plant != "neighbour") and only in plant
    ]
    bench.neighbours = {
        number: Neighbour(rank, bench.args)
        for number, (plant, rank) in enumerate(chosen)
        if plant == "neighbour"
    }
    for number, (plant, rank) in enumerate(chosen):
        if bench.left_s < 18:
            break
        try:
            row = plant_one(bench, kind, number, plant, rank)
        except Exception as fault:
            row = {"error": f"{type(fault).__name__}: {fault}", "named_s": None}
        rows.append({"plant": plant, "rank": rank, **row})
        bench.tell({"part": f"plant-{kind}", **rows[-1]})
        keep(bench.args)
    times = [row["named_s"] for row in rows]
    good = len(rows) == len(chosen) and all(t is not None and t <= NAMED_LIMIT_S for t in times)
    return {"planted": len(rows), "of": len(chosen), "named_s": times, "good": good}


def plant_one(bench: Bench, kind: str, number: int, plant: str, rank: int) -> dict[str, Any]:
    """Its row: when the rank was named with its cause, and all that was named before and after."""
    job = bench.job(kind)
    code, cause = KINDS[plant]
    neighbour = bench.neighbours.get(number)
    step_s = job.step_s()
    try:
        if neighbour is not None:
            neighbour.begin()
        job.goes_wrong(code, rank, step_s + LATE_S)
        time.sleep(SETTLE_S)
        planted_s = job.step_s()
        file = bench.args.out / f"{kind}-{number}-{plant}.brrr"
        monitor = bench.watch(job, "--record", str(file))
        named_s = monitor.wait_until_named(rank, cause, NAMED_LIMIT_S)
        time.sleep(LINGER_S)
        whole = monitor.stop()
    finally:
        job.goes_well()
        if neighbour is not None:
            neighbour.kill()
    return {"named_s": named_s, "cause": cause, "step_ms": step_s * 1e3,
            "planted_ms": planted_s * 1e3, **whole}  # fmt: skip


def keep(args: argparse.Namespace) -> None:
    """All recordings so far as one file among the results."""
    half = args.results / "recordings.part"
    with tarfile.open(half, "w") as tar:
        for file in sorted(args.out.glob("*.brrr")):
            tar.add(file, file.name)
    half.rename(args.results / "recordings.tar")


# --- attach and detach ---------------------------------------------------------------------------


def torment(pid: int, limit_s: float) -> dict[str, Any]:
    """Attaches and detaches for so long; in a process of its own for each rank."""
    failures, buffered, kernels, done = Counter[str](), [], 0, 0
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
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


def cycles(bench: Bench, _: str) -> dict[str, Any]:
    """Both ranks of one job; its twin is left alone."""
    names = ("exact-unwatched", "exact-watched")
    for name in names:
        if name not in bench.jobs:
            bench.preload([name])
        bench.jobs[name].begin()
    alone, watched = (bench.job(name) for name in names)
    end = time.monotonic() + START_LIMIT_S
    while not all(_has_losses(job) for job in (alone, watched)):
        if time.monotonic() > end or not (alone.alive() and watched.alive()):
            raise RuntimeError(f"no losses: {alone.tail()} {watched.tail()}")
        time.sleep(0.05)
    limit_s = max(min(CYCLES_S, bench.left_s - 8), LEAST_CYCLES_S)
    with multiprocessing.get_context("fork").Pool(watched.ranks) as bench.pool:
        results = bench.pool.starmap(torment, [(pid, limit_s) for pid in watched.pids])
    sizes = [watched.losses(rank).stat().st_size for rank in range(watched.ranks)]
    time.sleep(1)
    moving = all(watched.losses(r).stat().st_size > size for r, size in enumerate(sizes))
    alive = alone.alive() and watched.alive()
    for name in names:
        bench.end_job(name)
    same = [soak_compare.losses(alone.losses(r), watched.losses(r)) for r in range(watched.ranks)]
    good = alive and moving and all(one["identical"] for one in same)
    good = good and all(rank["cycles"] and not rank["failures"] for rank in results)
    return {"ranks": results, "losses": same, "alive": alive, "still_training": moving,
            "good": good}  # fmt: skip


def _has_losses(job: Job) -> bool:
    files = [job.losses(rank) for rank in range(job.ranks)]
    return all(file.exists() and file.stat().st_size > 4 * soak.LEAST_LOSSES for file in files)


# --- all of it -----------------------------------------------------------------------------------

PARTS: dict[str, tuple[Callable[[Bench, str], dict[str, Any]], str]] = {
    "overhead-ddp": (overhead, "ddp"), "balanced-ddp": (balanced, "ddp"), "plants-ddp": (plants, "ddp"), "plants-fsdp": (plants, "fsdp"), "neighbour-fsdp": (partial(plants, only="neighbour"), "fsdp"),
    "balanced-fsdp": (balanced, "fsdp"), "overhead-fsdp": (overhead, "fsdp"), "cycles": (cycles, ""),
}  # fmt: skip
JOBS_OF = {"cycles": ["exact-unwatched", "exact-watched"]}


def run(bench: Bench, chosen: list[str]) -> dict[str, Any]:
    """The parts, in turn; a job ends when no later part needs it."""
    needs = [JOBS_OF.get(part, [PARTS[part][1]]) for part in chosen]
    bench.preload(list(dict.fromkeys(name for names in needs for name in names)))
    result: dict[str, Any] = {}
    for place, part in enumerate(chosen):
        does, kind = PARTS[part]
        for name in [*bench.jobs]:  # one that trains would be a neighbour of this one
            if name not in needs[place] and bench.jobs[name].pids:
                bench.end_job(name)
        began = time.monotonic()
        try:
            result[part] = does(bench, kind)
        except Exception as fault:
            result[part] = {"error": f"{type(fault).__name__}: {fault}", "good": False}
        result[part]["took_s"] = time.monotonic() - began
        bench.tell({"part": part, **result[part]})
        later = {name for names in needs[place + 1 :] for name in names}
        for name in set(needs[place]) - later:
            bench.end_job(name)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_options.add(parser)
    parser.add_argument("--results", type=Path, help="for what is to be kept; by default --out")
    parser.add_argument("--limit", type=float, default=560.0, help="seconds in all")
    parser.add_argument("--ranks", type=int, default=2, help="each on a GPU of its own")
    usual = [part for part in PARTS if part != "neighbour-fsdp"]
    parser.add_argument("--parts", default=",".join(usual))
    args = parser.parse_args()
    gpu_options.prepare(args)
    args.results = args.results or args.out
    args.results.mkdir(parents=True, exist_ok=True)
    from collectors.attach import agent_library

    agent_library.agent_files()  # built once
    with (args.results / "ranks.jsonl").open("w") as lines:

        def tell(row: dict[str, Any]) -> None:
            text = json.dumps(row)
            lines.write(text + "\n")
            lines.flush()
            print(text[:600], flush=True)

        bench = Bench(args, tell)
        timer = threading.Timer(args.limit, give_up, [bench])
        timer.daemon = True
        timer.start()
        tell({"part": "machine", **machine()})
        try:
            result = run(bench, [part for part in args.parts.split(",") if part])
        finally:
            bench.end()
    return 0 if all(one["good"] for one in result.values()) else 1


def give_up(bench: Bench) -> None:
    """The time is over, whatever hangs."""
    bench.tell({"part": "end", "error": "the time is over"})
    bench.end()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
