"""Watches programs without an optimizer or without torch, and switches CUPTI in them again and again.

    python benchmarks/soak_any.py --out DIR [--site DIR] [--limit 270] [--switches 10000] [--only cpp/jax,jax_graphs] [--waits]

Each program is started twice and stopped once it runs. Then, group by group (those between two slashes), the
watched ones are attached to: how long the first verdict took. All of a group are traced in bursts of a
millisecond side by side, each burst switching CUPTI on and off, until they have been switched so often or their
time is over. At last those unwatched run until they have caught up with the watched.
Passes where every program got a verdict, was switched and left, lives, and computed at each of its lines what
it computes unwatched: each line depends on all that was launched before it. All are traced as
by default. With `--waits` the watched ones have a thread in each system call that a stop could cut short: none may end in
EINTR. Prints a line a program and writes any.json; the exit code is 1 where one failed.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import gpu_options  # noqa: E402
from waiting import Waiting  # noqa: E402
from watched import Watch  # noqa: E402

GROUPS = "cpp/by_hand,jax,jax_graphs,cupy"
START_S, LATEST_S = 90.0, 25.0
SWITCHING = 0.6
"""Of a group's time; the rest is for those unwatched, which run faster."""
WITHOUT_GRAPHS = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}
JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Program:
    """One that runs, and what it has printed."""

    def __init__(self, name: str, out: Path, launcher: Path | None, waits: bool = False) -> None:
        self.name, self.digests, self.stopped = name, {}, False
        words = [sys.executable, str(HERE / "soak_programs.py"), name]
        env = {**os.environ, **JAX, **(WITHOUT_GRAPHS if name == "jax" else {})}
        env["XLA_FLAGS"] = env.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
        self.waiting = Waiting(out, name) if waits else None
        env |= self.waiting.environment if self.waiting else {}
        self.errors = (out / f"{name}.err").open("w")
        self.process = subprocess.Popen(
            [str(launcher)] if name == "cpp" else words,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=env,
        )
        threading.Thread(target=self._read, daemon=True).start()

    digests: dict[str, str]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            round_, _, digest = line.strip().partition(" ")
            self.digests[round_] = digest

    def begun(self, limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        while not self.digests and self.process.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        return bool(self.digests)

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Keeps its state, and costs the others nothing."""
        self.stopped = True
        if self.runs:
            self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.stopped = False
        if self.runs:
            self.process.send_signal(signal.SIGCONT)

    def last_words(self) -> str:
        self.errors.flush()
        return Path(self.errors.name).read_text("utf-8", "replace")[-300:]

    def end(self) -> int | None:
        """Its exit code, had it ended by itself; None: it lived."""
        code = self.process.poll()
        self.process.kill()
        self.process.wait()
        self.errors.close()
        return code


def compiled(out: Path) -> Path | None:
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    if nvcc is None:
        return None
    target = out / "launcher"
    words = [nvcc, "-O2", "-arch=native", "-o", str(target), str(HERE / "launcher.cu")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"nvcc: {done.stderr[-300:]}")
    return target if done.returncode == 0 else None


def switch(program: Program, until: float, most: int, into: dict[str, Any]) -> None:
    """Bursts of a millisecond until the time is over or there were `most`; each switches CUPTI on, and off."""
    from collectors.attach import agent_library
    from collectors.attach.attach import attach
    from collectors.protocol import requests
    from collectors.protocol.frames import Kind

    attached = attach(program.process.pid, agent_library.agent_files())
    buffered: dict[str, list[int]] = {"on": [], "off": []}
    kernels, asked_s, says = 0, 0.0, ""
    client = attached.client
    client.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.HOLDS))
    began, ready = time.monotonic(), True
    while (
        time.monotonic() < until
        and 2 * len(buffered["on"]) < most
        and program.runs
        and not client.closed
    ):
        if ready or time.monotonic() - asked_s > 12:
            client.send(requests.burst(0, 1_000_000))
            ready, asked_s = False, time.monotonic()
        select.select([client], [], [], 0.2)
        for frame in client.frames():
            if frame.kind == Kind.KERNELS:
                kernels += len(frame.body)
            if frame.kind == Kind.STATUS and "traced" in frame.body:
                ready = True
                for key, spent in buffered.items():
                    spent.append(int(frame.body["traced"]["held_us"][key]))
            elif frame.kind == Kind.STATUS and frame.body.get("says"):
                says = str(frame.body["says"])
    into["switches"] = 2 * len(buffered["on"])
    into["in_s"] = round(time.monotonic() - began, 1)
    into["kernels_traced"] = kernels
    into["says"] = says
    for key, spent in buffered.items():
        if spent:
            into[f"held_{key}_us"] = [int(statistics.median(spent)), max(spent)]
    began = time.monotonic()
    into["left"] = attached.leave(5.0)
    into["left_s"] = round(time.monotonic() - began, 2)


def compared(alone: Program, watched: Program) -> dict[str, int]:
    """How many lines both have printed, and how many of these differ."""
    both = dict(alone.digests).keys() & dict(watched.digests).keys()
    differ = [line for line in both if alone.digests[line] != watched.digests[line]]
    return {"compared": len(both), "differ": len(differ)}


def catch_up(pairs: list[tuple[Program, Program]], until: float) -> None:
    """Lets those unwatched go on, each up to where its watched one ended, side by side as these ran."""
    behind = pairs
    for alone, _ in pairs:
        alone.go_on()
    while behind and time.monotonic() < until:
        time.sleep(0.1)
        for alone, watched in behind:
            if compared(alone, watched)["compared"] == len(watched.digests):
                alone.stop()
        behind = [pair for pair in behind if pair[0].runs and not pair[0].stopped]
    for alone, _ in behind:
        alone.stop()


def fails(result: dict[str, Any]) -> bool:
    """Whether what a program showed is less than what the soak promises."""
    return (
        "fault" in result
        or "regime" not in result
        or not result.get("switches")
        or not result.get("left")
        or result["died"] is not None
        or bool(result.get("differ"))
        or not result.get("compared")
        or bool(result.get("eintr"))
    )


def started(
    names: list[str], out: Path, launcher: Path | None, waits: bool
) -> list[tuple[Program, Program]]:
    """Those that run here, each twice, warm and stopped: to be left alone, and to be watched."""
    begun = []
    pairs = [(Program(n, out / "alone", launcher), Program(n, out, launcher, waits)) for n in names]
    until = time.monotonic() + START_S
    for pair in pairs:
        for one in pair:
            if one.begun(until - time.monotonic()):
                one.stop()
            else:
                print(f"{one.name}: does not run here: {one.last_words()}", flush=True)
        if all(one.stopped for one in pair):
            begun.append(pair)
        else:
            end(pair)
    return begun


def end(programs: Iterable[Program]) -> None:
    for one in programs:
        one.end()


def first_verdict(pid: int) -> dict[str, Any]:
    """How long it took from before the attach, and what it was; with what `attach` allows by default."""
    from brrrtop.scheduling.governor import Governor
    from collectors.protocol.requests import Wanted

    watch, until = (
        Watch(pid, Governor(), Wanted.DEFAULT | Wanted.HOLDS),
        time.monotonic() + LATEST_S,
    )
    try:
        while watch.verdict_s is None and time.monotonic() < until:
            watch.watch_for(0.05)
        result = {"attach": watch.attached.method, "notes": list(watch.snapshot.source.notes)}
        estimate = watch.snapshot.estimate
        if estimate is None or watch.verdict_s is None:
            return result
        return result | {
            "verdict_s": round(watch.verdict_s, 2), "regime": estimate.regime.value,
            "steps": estimate.steps.source, "kernels": sum(row.count for row in estimate.kernels),
        }  # fmt: skip
    finally:
        watch.close()


def attached_to(one: Program) -> dict[str, Any]:
    """Its first verdict, while it alone runs."""
    one.go_on()
    try:
        return first_verdict(one.process.pid)
    except Exception as fault:
        traceback.print_exc()
        return {"fault": repr(fault)[:300]}
    finally:
        one.stop()


def switched(watched: list[Program], until: float, most: int, result: dict[str, Any]) -> None:
    """All of them at once, switched again and again; then they end."""
    for one in watched:
        one.go_on()
    for one in watched:
        if one.waiting:
            one.waiting.begin()
    soaks = [
        threading.Thread(target=switch, args=(one, until, most, result[one.name]), daemon=True)
        for one in watched
    ]
    for soak in soaks:
        soak.start()
    for soak in soaks:
        soak.join(max(until - time.monotonic(), 0) + 60)
    time.sleep(0.5)
    for one in watched:
        if one.waiting:
            result[one.name] |= one.waiting.result()
        result[one.name] |= {"died": one.end()}
        print(one.name, json.dumps(result[one.name]), flush=True)


def soaked(pairs: list[tuple[Program, Program]], until: float, most: int) -> dict[str, Any]:
    """What the programs of a group showed, by name."""
    result: dict[str, Any] = {}
    for _, one in pairs:
        result[one.name] = attached_to(one)
        print(one.name, json.dumps(result[one.name]), flush=True)
    left_s = until - time.monotonic()
    switched([one for _, one in pairs], time.monotonic() + SWITCHING * left_s, most, result)
    catch_up(pairs, until)
    for alone, one in pairs:
        result[one.name] |= {"lines": len(one.digests)} | compared(alone, one)
        print(one.name, json.dumps(result[one.name]), flush=True)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_options.add(parser)
    parser.add_argument("--limit", type=float, default=270.0, help="seconds in all")
    parser.add_argument("--switches", type=int, default=10_000, help="of each program at most")
    parser.add_argument("--only", default=GROUPS, help="names; a slash: after those before it")
    parser.add_argument(
        "--waits", action="store_true", help="with threads in system calls that wait"
    )
    args = parser.parse_args()
    until = time.monotonic() + args.limit - 5
    gpu_options.prepare(args)
    (args.out / "alone").mkdir(exist_ok=True)
    launcher = compiled(args.out)
    groups = [part.split(",") for part in args.only.split("/")]
    names = [n for part in groups for n in part if n != "cpp" or launcher is not None]
    result: dict[str, dict[str, Any]] = {}
    pairs = started(names, args.out, launcher, args.waits)
    try:
        for number, part in enumerate(groups):
            mine = [pair for pair in pairs if pair[0].name in part]
            weight = sum(1 + len(one) for one in groups[number:])
            share_s = (until - time.monotonic()) * (1 + len(part)) / weight
            result |= soaked(mine, time.monotonic() + share_s, args.switches)
            (args.out / "any.json").write_text(json.dumps(result, indent=1))
    finally:
        for pair in pairs:
            end(pair)
        (args.out / "any.json").write_text(json.dumps(result, indent=1))
    failed = len(pairs) < len(names) or any(fails(one) for one in result.values())
    print("FAILED" if failed else "passed")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
