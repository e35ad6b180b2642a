"""Attaches and detaches again and again, and prints failures and for how long threads were held.

    python benchmarks/attach_soak.py [--cycles 300] [--limit SECONDS] [--kill-monitor 0] \
        [--way pending|thread|both] [--hard [PYTHON]] [-- trainer command]

Without a command it trains a little torch model on the CPU, with two loader workers; with `--hard`
it is tests/attach/hard_training.py, under another PYTHON where one is named. With `--kill-monitor N`
it also kills N attaching monitors by SIGKILL at random moments. The trainer must live and use its
processor to the end; its death or one failed cycle makes the exit code 1. A command that prints
nothing for long is given `--warm` seconds before the first attach.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from collectors.attach import agent_library  # noqa: E402
from collectors.attach.access import Attempt  # noqa: E402
from collectors.attach.attach import METHODS, attach  # noqa: E402
from collectors.attach.ptrace import calls  # noqa: E402
from collectors.errors import CollectorError  # noqa: E402
from collectors.process import process as processes  # noqa: E402

_TRAINERS = ROOT / "tests" / "attach"
_DEFAULT = [sys.executable, str(_TRAINERS / "torch_training.py")]
_HARD = ["-W", "ignore", str(_TRAINERS / "hard_training.py")]
SLOW_MS = 4000.0
_BY_NAME = {method.name: method for method in METHODS}
_WAYS = {
    "pending": (_BY_NAME["pending call"],),
    "thread": (_BY_NAME["parked thread"],),
    "both": METHODS,
}
_MONITOR = """
import sys; sys.path.insert(0, sys.argv[1])
from collectors.attach import agent_library as native  # noqa: E402
from collectors.attach.attach import attach  # noqa: E402
found = attach(int(sys.argv[2]), native.agent_files(), need_torch=False)
found.leave()
"""


class Trainer:
    """The process that must not notice."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.last_line = b""
        self.lines = 0
        self.odd_lines: list[str] = []
        self.last_s = time.monotonic()
        self.longest_silence_s = 0.0
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            now_s = time.monotonic()
            if self.lines > 3:
                self.longest_silence_s = max(self.longest_silence_s, now_s - self.last_s)
            self.last_s, self.last_line = now_s, line
            self.lines += 1
            if not line.startswith(b"step") and len(self.odd_lines) < 20:
                self.odd_lines.append(line.decode("utf-8", "replace").rstrip())

    def wait_until_it_trains(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while self.lines < 5 and time.monotonic() < deadline:  # five steps, or the limit
            if self.process.poll() is not None:
                sys.exit(f"the trainer ended: {self.last_line.decode('utf-8', 'replace')}")
            time.sleep(0.1)


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def show(label: str, values: list[float]) -> None:
    if values:
        parts = [f"p{int(q * 100)} {quantile(values, q):.2f}" for q in (0.5, 0.95, 0.99)]
        print(f"{label:32} n {len(values):4}  {'  '.join(parts)}  max {max(values):.2f} ms")


def one_cycle(pid: int, way: str) -> tuple[tuple[Attempt, ...], float]:
    began = time.perf_counter()
    attached = attach(pid, agent_library.agent_files(), methods=_WAYS[way], need_torch=False)
    took_ms = (time.perf_counter() - began) * 1e3
    time.sleep(random.uniform(0, 0.05))
    if not attached.leave():
        raise CollectorError("the agent did not end when asked")
    return attached.attempts, took_ms


def kill_one(pid: int) -> None:
    """Starts a monitor and kills it, with the process it traces by, at a random moment."""
    monitor = subprocess.Popen(
        [sys.executable, "-c", _MONITOR, str(ROOT), str(pid)], stderr=subprocess.DEVNULL
    )
    time.sleep(random.uniform(0.1, 0.9))
    children = [c for c in processes.pids() if _parent(c) == monitor.pid]
    for victim in (*children, monitor.pid):
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            continue
    monitor.wait()


def _parent(pid: int) -> int:
    try:
        return processes.read(pid).parent
    except CollectorError:
        return 0


def _cpu_ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    words = text[text.rindex(")") + 2 :].split()
    return int(words[11]) + int(words[12])


def gets_on(trainer: Trainer, says_so: bool, limit_s: float = 60.0) -> bool:
    """It uses its processor and, where it tells its steps, comes to the next one.

    A busy machine may keep it waiting for long.
    """
    ticks, lines = _cpu_ticks(trainer.process.pid), trainer.lines
    deadline = time.monotonic() + limit_s
    while trainer.process.poll() is None and time.monotonic() < deadline:
        message = trainer.lines > lines or not says_so
        if message and _cpu_ticks(trainer.process.pid) > ticks:
            return True
        time.sleep(0.05)
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=300)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds of cycles")
    parser.add_argument("--kill-monitor", type=int, default=0)
    parser.add_argument("--way", choices=sorted(_WAYS), default="both")
    parser.add_argument("--hard", nargs="?", const=sys.executable)
    parser.add_argument("command", nargs="*")
    parser.add_argument("--warm", type=float, default=60.0)
    given = parser.parse_args()
    trainer = Trainer(given.command or ([given.hard, *_HARD] if given.hard else _DEFAULT))
    trainer.wait_until_it_trains(given.warm)
    pid = trainer.process.pid
    failures: list[str] = []
    buffered: dict[str, list[float]] = {}
    took: list[float] = []
    slow: list[str] = []
    done, end_s = 0, time.monotonic() + given.limit
    for number in range(given.cycles):
        if time.monotonic() > end_s:
            break
        done += 1
        try:
            attempts, took_ms = one_cycle(pid, given.way)
        except CollectorError as fault:
            failures.append(f"cycle {number}: {type(fault).__name__}: {fault}")
            if trainer.process.poll() is not None:
                break
            continue
        took.append(took_ms)
        if took_ms > SLOW_MS:
            slow.append(
                f"cycle {number}: {took_ms:.0f} ms {[(a.method, a.reason) for a in attempts]}"
            )
        for stop in (stop for attempt in attempts for stop in attempt.stops):
            who = "main thread" if stop.tid == pid else "another thread"
            buffered.setdefault(f"held, {who}", []).append(stop.stopped_ns / 1e6)
            buffered.setdefault(f"before it stood, {who}", []).append(stop.awaited_ns / 1e6)
    for _ in range(given.kill_monitor):
        kill_one(pid)
    died = trainer.process.poll()
    alive = died is None and bool(calls.thread_ids(pid))
    moving = gets_on(trainer, says_so=not given.command)
    trainer.process.kill()
    trainer.process.wait()
    for label, values in sorted(buffered.items()):
        show(label, values)
    show("attach to hello", took)
    print(f"failures {len(failures)} of {done}; monitors killed {given.kill_monitor}")
    print(
        f"trainer alive {alive}, still training {moving}, {trainer.lines} lines, longest silence "
        f"{trainer.longest_silence_s:.2f} s"
    )
    for line in (*failures[:10], *slow[:10]):
        print(line)
    for line in trainer.odd_lines:
        print(f"the trainer: {line}")
    if died is not None:
        print(f"exit code {died}")
    return 0 if alive and moving and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
