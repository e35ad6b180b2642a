"""Torments a trainer with attaches, detaches and dying monitors, and checks that it never notices.

    python benchmarks/soak.py --out DIR [--parts cycles,graphs,kills,exact] [--cycles 300]
        [--kills 100] [--limit 240] [--site DIR] [--device cuda|cpu] [--waits]

cycles  attach, trace, detach, again and again, on a trainer that allocates, loads and compiles;
        each fifth time until kernels have come; every so often torch.profiler has a turn in it
graphs  the same on one that also replays CUDA graphs
kills   `kill -9` of the monitor at random moments; the losses must be those of an unwatched run
exact   kernels of whole steps in a burst against torch.profiler's, by name, and their durations

With `--waits` the trainers of `cycles` and `graphs` also have a thread in each system call that a stop could
cut short (`waiting.py`), and none of those calls may end in EINTR. The first three run side by side, `exact` alone after them. `--limit` bounds each part, in seconds.
Prints a line a part and writes soak.json; the exit code is 1 when a part failed.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import random
import select
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
import soak_compare  # noqa: E402
from tormented import Tormented  # noqa: E402
from waiting import Waiting  # noqa: E402

BESIDE = ("cycles", "graphs", "kills")
START_LIMIT_S = 150.0
KILL_LATEST_S = 1.2
BURST_STEPS = 24
STAGES = ("attaching", "watching", "tracing")
LEAST_LOSSES = 20
STAYS_EACH, STAYS_S = 5, 1.5
"""Of so many cycles one stays until it has kernels, at most so long: most end before."""
PROFILES, PROFILED_STEPS = 10, 20
"""torch.profiler's turns among the cycles, and steps of each."""


# --- attach and detach ---------------------------------------------------------------------------


def one_cycle(pid: int, number: int, kernels_within_s: float = 0.0) -> tuple[int, int]:
    """An attach with some tracing and a detach; ns for which threads were held, kernels seen.

    Args:
        number: By turns a burst and continuous tracing.
        kernels_within_s: Stays for so long, or until kernels have come.

    Raises:
        CollectorError, WireError: What failed.
    """
    from collectors.attach import agent_library
    from collectors.attach.attach import attach
    from collectors.errors import CollectorError
    from collectors.protocol import requests
    from collectors.protocol.frames import Kind

    attached = attach(pid, agent_library.agent_files())
    kernels, end = 0, time.monotonic() + random.uniform(0, 0.08)
    latest = time.monotonic() + kernels_within_s
    try:
        order = requests.continuous(True) if number % 2 else requests.burst(2, 50_000_000)
        attached.client.send(order)
        while not attached.client.closed:
            now = time.monotonic()
            if now >= end and (kernels or now >= latest):
                break
            select.select([attached.client], [], [], 0.01)
            kernels += sum(len(f.body) for f in attached.client.frames() if f.kind == Kind.KERNELS)
    finally:
        ended = attached.leave()
    if not ended:
        raise CollectorError("the agent did not end when asked")
    return attached.stopped_ns, kernels


def cycles(args: argparse.Namespace, graphs: bool = False) -> dict[str, Any]:
    """`--cycles` attaches on a busy trainer, some of them by the command line."""
    from watched import by_command_line

    from collectors.errors import CollectorError
    from collectors.protocol.frames import WireError

    words = ["busy", "--device", args.device, *(["--graphs"] if graphs else [])]
    words += ["--foreign-hook"] if args.foreign_hook else []
    order = (args.out / f"order-{'graphs' if graphs else 'cycles'}.json").resolve()
    order.unlink(missing_ok=True)
    words += ["--order", str(order)]
    name = "graphs" if graphs else "cycles"
    waiting = Waiting(args.out, name) if args.waits else None
    environment = waiting.environment if waiting else None
    trainer = Tormented(args.out, name, words, environment=environment)
    failures: Counter[str] = Counter()
    buffered: list[int] = []
    done = kernels = with_kernels = by_command = profiles = 0
    try:
        trainer.wait_for(100, START_LIMIT_S)
        end = time.monotonic() + args.limit
        while done < args.cycles and time.monotonic() < end:
            done += 1
            try:
                if args.cli_cycles and done % max(args.cycles // args.cli_cycles, 1) == 0:
                    result = by_command_line(trainer.pid, args.site, 4.0)
                    by_command += 1
                    if result["exit"] not in (0, 130, -signal.SIGINT) or "fault" in result:
                        failures[f"command line: {result}"] += 1
                else:
                    stays = done % STAYS_EACH == 0 and args.device == "cuda"
                    number, stays_s = (done // STAYS_EACH, STAYS_S) if stays else (done, 0.0)
                    stopped_ns, seen = one_cycle(trainer.pid, number, stays_s)
                    buffered.append(stopped_ns)
                    kernels += seen
                    with_kernels += seen > 0
                if done % max(args.cycles // PROFILES, 1) == 0:
                    profile(order, PROFILED_STEPS).unlink()
                    profiles += 1
            except (CollectorError, WireError, OSError, RuntimeError) as fault:
                failures[f"{type(fault).__name__}: {fault}"] += 1
            wrong = trainer.what_is_wrong()
            if wrong is not None:
                failures[wrong] += 1
                break
        size = trainer.size()
        time.sleep(2)
        calls = waiting.result() if waiting else {}
        if calls.get("eintr") or (waiting and not calls["system_calls"]):
            failures[f"system calls: {calls}"] += 1
        if trainer.process.poll() is not None or trainer.size() == size:
            failures[f"it no longer trains: {trainer.tail()}"] += 1
    finally:
        trainer.kill()
    return {
        "cycles": done, "wanted": args.cycles, "by_command_line": by_command, "profiles": profiles,
        "failures": dict(failures), **calls,
        "kernels": kernels, "with_kernels": with_kernels, "longest_silence_s": trainer.silence_s,
        "held_ms": statistics.median(buffered) / 1e6 if buffered else None,
        "held_p95_ms": sorted(buffered)[int(0.95 * len(buffered))] / 1e6 if buffered else None,
        "held_most_ms": max(buffered) / 1e6 if buffered else None, "good": done > 0 and not failures,
    }  # fmt: skip


# --- kill -9 -------------------------------------------------------------------------------------


def doomed_monitor(pid: int, stage: mmap.mmap, number: int) -> int:
    """The process id of a monitor that watches `pid` until it is killed: the product, in a fork.

    Args:
        stage: Byte `number` tells how far it has come: an index of STAGES.
    """
    stage[number] = 0
    child = os.fork()
    if child:
        return child
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        from watched import Watch

        from brrrtop.scheduling.governor import Governor

        random.seed()
        watch = Watch(pid, Governor())
        stage[number] = 1
        if random.random() < 0.5:
            watch.controller.continuous(True)
        while True:
            watch.watch_for(0.05)
            stage[number] = 2 if watch.governor.tracing else 1
    finally:
        os._exit(1)


def kill_monitors(trainers: list[Tormented], kills: int, limit_s: float) -> Counter[str]:
    """Starts monitors and kills them, one a trainer at a time; how many, and in which stage."""
    import watched  # noqa: F401 - imported once here, not in every fork

    end, died = time.monotonic() + limit_s, Counter[str]()
    stage = mmap.mmap(-1, len(trainers))
    running: dict[int, tuple[int, float]] = {}
    while died.total() < kills and time.monotonic() < end:
        for number, trainer in enumerate(trainers):
            if number not in running:
                at_s = time.monotonic() + random.uniform(0.01, KILL_LATEST_S)
                running[number] = (doomed_monitor(trainer.pid, stage, number), at_s)
        time.sleep(0.002)
        for number, (child, at_s) in list(running.items()):
            if time.monotonic() >= at_s:
                early = os.waitpid(child, os.WNOHANG)[0] == child
                if not early:
                    _kill(child)
                died["ended by itself" if early else STAGES[stage[number]]] += 1
                del running[number]
    for child, _ in running.values():
        _kill(child)
    return died


def _kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def kills(args: argparse.Namespace) -> dict[str, Any]:
    """`--kills` killed monitors; losses of the tormented runs against those of an unwatched one."""
    from collectors.errors import CollectorError

    files = [args.out / f"losses{number}.f4" for number in range(3)]
    for file in files:
        file.unlink(missing_ok=True)
    words = ["exact", "--device", args.device, "--losses"]
    trainers = [Tormented(args.out, f.stem, [*words, str(f.resolve())], f) for f in files]
    failures: Counter[str] = Counter()
    died: Counter[str] = Counter()
    try:
        for trainer in trainers:
            trainer.wait_for(4 * LEAST_LOSSES, START_LIMIT_S)
        died = kill_monitors(trainers[1:], args.kills, args.limit)
        time.sleep(1)
        for trainer in trainers[1:]:
            try:
                one_cycle(trainer.pid, 0)
            except (CollectorError, OSError) as fault:
                failures[f"attach after the kills: {fault}; {trainer.what_is_wrong()}"] += 1
        for trainer in trainers:
            size = trainer.size()
            time.sleep(0.5)
            wrong = trainer.what_is_wrong() or (
                None if trainer.size() > size else "it no longer trains"
            )
            if wrong is not None:
                failures[wrong] += 1
    finally:
        for trainer in trainers:
            trainer.kill()
    same = [soak_compare.losses(files[0], file) for file in files[1:]]
    good = died.total() > 0 and not failures and all(one["identical"] for one in same)
    return {
        "killed": dict(died), "wanted": args.kills, "failures": dict(failures),
        "losses": same, "good": good,
    }  # fmt: skip


# --- exactness -----------------------------------------------------------------------------------


def burst_of(pid: int, steps: int, limit_s: float) -> list[Any]:
    """All frames of one burst of that many steps and a little more."""
    from collectors.attach import agent_library
    from collectors.attach.attach import attach
    from collectors.protocol import requests
    from collectors.protocol.frames import Kind

    attached = attach(pid, agent_library.agent_files())
    burst: list[Any] = []
    try:
        time.sleep(0.6)  # hooks are in place after the agent's first round
        attached.client.send(requests.burst(steps + 2, 20_000_000_000))
        end = time.monotonic() + limit_s
        while time.monotonic() < end and not attached.client.closed:
            select.select([attached.client], [], [], 0.1)
            frames = attached.client.frames()
            burst += frames
            if any(f.kind == Kind.STATUS and "traced" in f.body for f in frames):
                end = min(end, time.monotonic() + 0.5)  # whatever else is on its way
    finally:
        attached.leave()
    return burst


def profile(order: Path, steps: int, limit_s: float = 60) -> Path:
    """A trace that torch.profiler made in the trainer."""
    out = order.with_name(f"trace-{time.monotonic_ns()}.json")
    half = order.with_suffix(".part")
    half.write_text(json.dumps({"steps": steps, "out": str(out)}))
    half.rename(order)
    end = time.monotonic() + limit_s
    while not out.exists():
        if time.monotonic() > end:
            raise RuntimeError("torch.profiler's trace did not come")
        time.sleep(0.05)
    return out


def exact(args: argparse.Namespace) -> dict[str, Any]:
    """A burst between two profiles of the same trainer: counts by name, and durations."""
    losses, order = (args.out / "exact.f4").resolve(), (args.out / "order.json").resolve()
    for file in (losses, order):
        file.unlink(missing_ok=True)
    words = ["exact", "--device", args.device, "--losses", str(losses), "--order", str(order)]
    trainer = Tormented(args.out, "exact", words, losses)
    try:
        trainer.wait_for(4 * 50, START_LIMIT_S)
        before = soak_compare.of_trace(profile(order, BURST_STEPS))
        limit_s = 25.0 if args.device == "cuda" else 2.0
        burst = soak_compare.of_burst(burst_of(trainer.pid, BURST_STEPS, limit_s))
        after = soak_compare.of_trace(profile(order, BURST_STEPS))
    finally:
        trainer.kill()
    return soak_compare.kernels(burst, before, after, BURST_STEPS)


# --- all of them ---------------------------------------------------------------------------------

PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "cycles": cycles, "graphs": lambda args: cycles(args, graphs=True), "kills": kills, "exact": exact,
}  # fmt: skip


def one(part: str, args: argparse.Namespace) -> dict[str, Any]:
    """One part, in this process; an error in it is a finding."""
    began = time.monotonic()
    if part == "graphs" and args.device == "cpu":
        return {"skipped": "CUDA graphs need a GPU", "good": True}
    try:
        result = PARTS[part](args)
    except Exception as fault:
        result = {"error": f"{type(fault).__name__}: {fault}", "good": False}
    return result | {"took_s": time.monotonic() - began}


def side_by_side(parts: list[str], args: argparse.Namespace) -> dict[str, Any]:
    """Each part in a process of its own."""
    rest = sys.argv[1:]
    running = {}
    for part in parts:
        out = args.out / part
        command = [sys.executable, __file__, *rest, "--parts", part, "--out", str(out)]
        running[part] = (subprocess.Popen(command), out / "soak.json")
    side: dict[str, Any] = {}
    try:
        for part, (process, file) in running.items():
            process.wait(START_LIMIT_S + args.limit + 60)
            side[part] = json.loads(file.read_text())[part]
    except (subprocess.TimeoutExpired, OSError) as fault:
        side |= {p: {"error": str(fault), "good": False} for p in parts if p not in side}
    finally:
        for process, _ in running.values():
            process.terminate()
    return side


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_options.add(parser)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--cli-cycles", type=int, default=5, help="of them by the command line")
    parser.add_argument(
        "--foreign-hook", action="store_true", help="beside another's optimizer hook"
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--limit", type=float, default=240.0)
    parser.add_argument(
        "--waits", action="store_true", help="with threads in system calls that wait"
    )
    args = parser.parse_args()
    gpu_options.prepare(args)
    parts = [part for part in args.parts.split(",") if part]
    beside = [part for part in parts if part in BESIDE]
    result = side_by_side(beside, args) if len(parts) > 1 and beside else {}
    for part in parts:
        if part not in result:
            result[part] = one(part, args)
            print(f"{part}: {json.dumps(result[part])}", flush=True)
    (args.out / "soak.json").write_text(json.dumps(result, indent=1))
    return 0 if all(part["good"] for part in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
