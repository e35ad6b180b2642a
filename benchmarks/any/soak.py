"""Watches programs without an optimizer or without torch, and switches CUPTI in them again and again.

    python benchmarks/any/soak.py --out DIR [--site DIR] [--soak 240] [--only jax,cpp]

Each program runs alone for some seconds and is stopped; then a second one, attached to: how long the first
verdict took. Then all that run are traced in bursts of a millisecond side by side, each burst switching CUPTI
on and off. At last those unwatched go on until they have caught up with the watched. Passes where every
program got a verdict, was switched, lives, and computed at each of its lines what it computes unwatched.
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
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

import gpu_options  # noqa: E402

NAMES = ("by_hand", "jax", "jax_graphs", "cupy", "cpp")
ALONE_S, START_S, VERDICT_S, CATCH_UP_S = 20.0, 90.0, 25.0, 60.0
WITHOUT_GRAPHS = {"XLA_FLAGS": "--xla_gpu_enable_command_buffer="}
JAX = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


class Program:
    """One that runs, and what it has printed."""

    def __init__(self, name: str, out: Path, launcher: Path | None) -> None:
        self.name, self.digests = name, {}
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

    def stop(self) -> None:
        """Keeps its state, and costs the others nothing."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)

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


def verdict(pid: int) -> dict[str, Any]:
    """How long the first verdict took from before the attach, and what it was."""
    from brrrtop.protocol import requests
    from brrrtop.session.live import LiveSession
    from brrrtop.session.session import Session
    from brrrtop.sources.live import LiveSource
    from collectors.attach import agent_library
    from collectors.attach.attach import attach
    from collectors.gpu.nvidia.sampler_thread import GaugeThread

    files = agent_library.agent_files()
    began = time.perf_counter()
    attached = attach(pid, files)
    try:
        attached.client.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
        gauges = GaugeThread(pid)
        gauges.start()
        source = LiveSource(attached.client, pid, feeds=[gauges])
        driver = LiveSession(Session(source), source)
        snapshot = driver.advance()
        while snapshot.estimate is None and time.perf_counter() - began < VERDICT_S:
            time.sleep(0.05)
            snapshot = driver.advance()
        result: dict[str, Any] = {
            "verdict_s": round(time.perf_counter() - began, 2),
            "attach": attached.method,
            "notes": list(snapshot.source.notes),
        }
        if snapshot.estimate is not None:
            result["regime"] = snapshot.estimate.regime.value
            result["steps"] = snapshot.estimate.steps.source
            result["kernels"] = sum(row.count for row in snapshot.estimate.kernels)
        driver.close()
        return result
    finally:
        attached.leave()


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
    client.send(requests.kinds(requests.Wanted.DEFAULT | requests.Wanted.GRAPHS))
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


def catch_up(pairs: list[tuple[Program, Program]]) -> None:
    """Lets those unwatched go on, one at a time, up to where the watched ended; a minute at most each."""
    for alone, watched in pairs:
        alone.go_on()
        until = time.monotonic() + CATCH_UP_S
        while (
            compared(alone, watched)["compared"] < len(watched.digests)
            and alone.process.poll() is None
            and time.monotonic() < until
        ):
            time.sleep(0.1)
        alone.stop()


def fails(result: dict[str, Any]) -> bool:
    """Whether what a program showed is less than what the soak promises."""
    return (
        "fault" in result
        or "regime" not in result
        or not result.get("switches")
        or result["died"] is not None
        or bool(result["differ"])
        or not result["compared"]
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    gpu_options.add(parser)
    parser.add_argument("--soak", type=float, default=240.0)
    parser.add_argument("--only", default=",".join(NAMES))
    args = parser.parse_args()
    gpu_options.prepare(args)
    launcher = compiled(args.out)
    names = [n for n in args.only.split(",") if n != "cpp" or launcher is not None]

    alone = {name: Program(name, args.out, launcher) for name in names}
    began = {name: one.begun(START_S) for name, one in alone.items()}
    time.sleep(ALONE_S)
    for name, one in alone.items():
        one.stop()
        if not began[name]:
            one.end()
            print(f"{name}: does not run here: {(args.out / f'{name}.err').read_text()[-300:]}")
    names = [name for name in names if began[name]]
    result: dict[str, dict[str, Any]] = {name: {} for name in names}
    watched = {}
    for name in names:
        watched[name] = Program(name, args.out, launcher)
        watched[name].begun(START_S)
        try:
            result[name] |= verdict(watched[name].process.pid)
        except Exception as fault:
            result[name]["fault"] = repr(fault)[:300]
            traceback.print_exc()
        print(name, json.dumps(result[name]), flush=True)
    soaks = [
        threading.Thread(target=switch, args=(one, args.soak, result[name]), daemon=True)
        for name, one in watched.items()
    ]
    for soak in soaks:
        soak.start()
    for soak in soaks:
        soak.join(args.soak + 60)
    for name, one in watched.items():
        time.sleep(0.5)
        result[name] |= {"died": one.end()}
        print(name, json.dumps(result[name]), flush=True)
    catch_up([(alone[name], watched[name]) for name in names])
    for name, one in watched.items():
        result[name] |= compared(alone[name], one)
        print(name, json.dumps(result[name]), flush=True)
    for name in names:
        alone[name].end()
    (args.out / "any.json").write_text(json.dumps(result, indent=1))
    failed = not names or any(fails(one) for one in result.values())
    print("FAILED" if failed else "passed")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
