"""Attaches to a trainer, watches a burst or continuously, leaves, and prints what the agent did until it was gone.

    python benchmarks/lab/leaving.py [--times 6] [--continuous] -- python train.py

For each time: how long until the agent's thread was gone, and, every 20 ms while it was not, where that thread and
the main thread were in the kernel (state, system call, wait channel), counted.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from collectors import control, native  # noqa: E402
from collectors.attach import attach  # noqa: E402
from collectors.wire import Kind  # noqa: E402


def read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def place(task: Path) -> str:
    state = read(task / "stat").rpartition(")")[2].split()[:1]
    return f"{''.join(state)} call {read(task / 'syscall').split(' ')[0]} {read(task / 'wchan')}"


def agents(pid: int) -> list[Path]:
    """The agent's thread; CUPTI's own, which it started, bear its name and stay."""
    return [t for t in Path(f"/proc/{pid}/task").iterdir() if read(t / "comm") == "brrrtop-agent"]


def leave(pid: int, continuous: bool) -> None:
    attached = attach(pid, native.agent_files())
    client, seen, until = attached.client, 0, time.monotonic() + 4
    client.send(control.continuous(True) if continuous else control.burst(3, 10**9))
    while time.monotonic() < until:
        frames = client.frames()
        seen += sum(len(f.body) for f in frames if f.kind == Kind.KERNELS)
        if not continuous and any(f.kind == Kind.STATUS and "traced" in f.body for f in frames):
            break
        time.sleep(0.01)
    time.sleep(0.3)
    where: Counter[str] = Counter()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for task in agents(pid):
                where["agent: " + place(task)] += 1
            where["main: " + place(Path(f"/proc/{pid}/task/{pid}"))] += 1

    looker = threading.Thread(target=look)
    began = time.monotonic()
    looker.start()
    ended = attached.leave(limit_s=8.0)
    took = time.monotonic() - began
    over.set()
    looker.join()
    print(
        f"kernels {seen}, ended {ended} after {took:.3f} s, stopped by the attach {attached.stopped_ns / 1e6:.2f} ms"
    )
    for text, count in where.most_common(8):
        print(f"    {count:4} x 20 ms  {text}")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--times", type=int, default=6)
    options.add_argument("--warm", type=float, default=20.0, help="seconds before the first attach")
    options.add_argument("--continuous", action="store_true")
    options.add_argument("command", nargs="+")
    given = options.parse_args()
    trainer = subprocess.Popen(given.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(given.warm)
        for _ in range(given.times):
            leave(trainer.pid, given.continuous)
            time.sleep(0.5)
        print("trainer alive", trainer.poll() is None)
    finally:
        trainer.kill()
        trainer.wait()


if __name__ == "__main__":
    main()
