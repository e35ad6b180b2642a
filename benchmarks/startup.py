"""How long until something is on the screen: `brrrtop --help` and the demo's first frame.

    python benchmarks/startup.py

Each figure is the median of interleaved runs in this process's interpreter; `--help` is given as
a ratio to the same interpreter starting and ending with nothing to do.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 25
SCREEN_ROUNDS = 5
FIRST_FRAME_WORD = b"-bound "
LONGEST_S = 20.0


def wall_s(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def first_frame_s(command: list[str]) -> float:
    """From the start of `command` on an 80x24 terminal until its screen names a share."""
    began = time.perf_counter()
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="80", LINES="24")
        os.execvp(command[0], command)
    seen = b""
    try:
        while FIRST_FRAME_WORD not in seen.lower():
            ready, _, _ = select.select([terminal], [], [], LONGEST_S)
            if not ready:
                raise TimeoutError("no first frame")
            seen = (seen + os.read(terminal, 1 << 16))[-(1 << 18) :]
        return time.perf_counter() - began
    finally:
        os.kill(child, 15)
        os.waitpid(child, 0)
        os.close(terminal)


def interleaved(measures: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            times[name].append(measure())
    return times


def shown(name: str, times: list[float]) -> str:
    low, high = min(times), max(times)
    middle = statistics.median(times)
    return f"{name:<24}{1e3 * middle:8.1f} ms   ({1e3 * low:.1f} to {1e3 * high:.1f})"


def main() -> int:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as installed: compiled once
    program = shutil.which("brrrtop", path=str(Path(sys.executable).parent)) or "brrrtop"
    starts = interleaved(
        {
            "bare interpreter": lambda: wall_s([sys.executable, "-c", "pass"]),
            "brrrtop --help": lambda: wall_s([program, "--help"]),
        },
        ROUNDS,
    )
    for name, times in starts.items():
        print(shown(name, times))
    bare, helped = (statistics.median(times) for times in starts.values())
    print(f"{'ratio':<24}{helped / bare:8.2f}      (to reach: 3)")
    try:
        frames = [first_frame_s([program, "demo"]) for _ in range(SCREEN_ROUNDS)]
    except (TimeoutError, OSError) as fault:
        print(f"demo, first frame: not measured ({fault or type(fault).__name__})")
        return 1
    print(shown("demo, first frame", frames))
    return 0


if __name__ == "__main__":
    sys.exit(main())
