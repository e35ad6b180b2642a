"""Watches programs without an optimizer or without torch, and switches CUPTI in them again and again.

    python benchmarks/any/soak.py --out DIR [--site DIR] [--soak 240] [--alone 20] [--only jax,cpp]

Each program runs unwatched for some seconds and is stopped; then a second one, attached to while the others
are stopped: how long the first verdict took. Then all that run are traced in bursts of a millisecond side by
side, each burst switching CUPTI on and off. At last those unwatched go on until they have caught up with the
watched. Passes where every program got a verdict, was switched and left, lives, and computed at each of its lines what
it computes unwatched. Programs with torch are traced as by default, the others as `--trace-graphs` does.
Prints a line a program and writes any.json; the exit code is 1 where one failed.
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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import gpu_options  # noqa: E402
from first_verdict import ask, verdict  # noqa: E402

NAMES = ("by_hand", "jax", "jax_graphs", "cupy", "cpp")
START_S, CATCH_UP_S = 90.0, 60.0
WITHOUT_GRAPHS = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}
JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Program:
    """One that runs, and what it has printed."""

    def __init__(self, name: str, out: Path, launcher: Path | None) -> None:
        self.name, self.digests, self.stopped = name, {}, False
        words = [sys.executable, str(HERE / "programs.py"), name]
        env = {**os.environ, **JAX, **(WITHOUT_GRAPHS if name == "jax" else {})}
        env["XLA_FLAGS"] = env.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
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


def switch(program: Program, seconds: float, into: dict[str, Any]) -> None:
    """Bursts of a millisecond until the time is over; each switches CUPTI on, and off."""
    from brrrtop.protocol import requests
    from brrrtop.protocol.frames import Kind
    from collectors.attach import agent_library
    from collectors.attach.attach import attach

    attached = attach(program.process.pid, agent_library.agent_files())
    buffered: dict[str, list[int]] = {"on": [], "off": []}
    kernels, asked_s, says = 0, 0.0, ""
    client = attached.client
    ask(client, program.name)
    until = time.monotonic() + seconds
    ready = True
    while time.monotonic() < until and program.process.poll() is None and not client.closed:
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
    into["kernels_traced"] = kernels
    into["says"] = says
    for key, spent in buffered.items():
        if spent:
            into[f"held_{key}_us"] = [int(statistics.median(spent)), max(spent)]
    into["left"] = attached.leave(5.0)


def compared(alone: Program, watched: Program) -> dict[str, int]:
    """How many lines both have printed, and how many of these differ."""
    both = dict(alone.digests).keys() & dict(watched.digests).keys()
    differ = [line for line in both if alone.digests[line] != watched.digests[line]]
    return {"compared": len(both), "differ": len(differ)}


def catch_up(pairs: list[tuple[Program, Program]], limit_s: float) -> None:
    """Lets those unwatched go on, each up to where its watched one ended, side by side as these ran."""
    until, behind = time.monotonic() + limit_s, pairs
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
    )


def started(names: list[str], out: Path, launcher: Path | None, seconds: float) -> list[Program]:
    """Those that run here, warm and stopped again after so many seconds more."""
    programs = [Program(name, out, launcher) for name in names]
    begun = [one for one in programs if one.begun(START_S)]
    time.sleep(seconds)
    for one in programs:
        one.stop()
        if one not in begun:
            print(f"{one.name}: does not run here: {one.last_words()}", flush=True)
            one.end()
    return begun


def attached_to(one: Program) -> dict[str, Any]:
    """Its first verdict, while it alone runs."""
    one.go_on()
    try:
        return verdict(one.name, one.process.pid)
    except Exception as fault:
        traceback.print_exc()
        return {"fault": repr(fault)[:300]}
    finally:
        one.stop()


def switched(watched: list[Program], seconds: float, result: dict[str, dict[str, Any]]) -> None:
    """All of them at once, switched again and again; then they end."""
    for one in watched:
        one.go_on()
    soaks = [
        threading.Thread(target=switch, args=(one, seconds, result[one.name]), daemon=True)
        for one in watched
    ]
    for soak in soaks:
        soak.start()
    for soak in soaks:
        soak.join(seconds + 60)
    time.sleep(0.5)
    for one in watched:
        result[one.name] |= {"died": one.end()}
        print(one.name, json.dumps(result[one.name]), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    gpu_options.add(parser)
    parser.add_argument("--soak", type=float, default=240.0, help="seconds of switching")
    parser.add_argument("--alone", type=float, default=20.0, help="seconds unwatched at first")
    parser.add_argument("--only", default=",".join(NAMES))
    args = parser.parse_args()
    gpu_options.prepare(args)
    launcher = compiled(args.out)
    names = [n for n in args.only.split(",") if n != "cpp" or launcher is not None]
    result: dict[str, dict[str, Any]] = {}
    alone, watched = list[Program](), list[Program]()
    try:
        alone = started(names, args.out, launcher, args.alone)
        watched = started([one.name for one in alone], args.out, launcher, 0)
        for one in watched:
            result[one.name] = attached_to(one)
            print(one.name, json.dumps(result[one.name]), flush=True)
        switched(watched, args.soak, result)
        (args.out / "any.json").write_text(json.dumps(result, indent=1))
        pairs = [(one, other) for one in alone for other in watched if one.name == other.name]
        catch_up(pairs, max(CATCH_UP_S, args.soak))
        for one, other in pairs:
            result[one.name] |= compared(one, other)
            print(one.name, json.dumps(result[one.name]), flush=True)
    finally:
        for one in (*alone, *watched):
            one.end()
        (args.out / "any.json").write_text(json.dumps(result, indent=1))
    failed = len(watched) < len(names) or any(fails(one) for one in result.values())
    print("FAILED" if failed else "passed")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
