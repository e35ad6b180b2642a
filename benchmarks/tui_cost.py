"""What the screen costs: time to its first frame, and its share of a core while it replays.

    python benchmarks/tui_cost.py [SCENARIO] [--seconds 20] [--size 120x40]

Runs `python -m brrrtop demo SCENARIO` in a pseudo-terminal of that size, as a person would. The
first frame counts as drawn once the verdict is on the terminal. Targets: 0.6 s of CPU from the start of
the process to the first frame, 5 % of a core at two snapshots a second.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from collectors.process import proc

FIRST_FRAME_CPU_S, CPU_SHARE = 0.6, 0.05
READY = (b"-BOUND", b"MIXED", b"UNKNOWN")


def started(scenario: str, columns: int, rows: int) -> tuple[subprocess.Popen[bytes], int]:
    """The program in a pseudo-terminal, and the terminal's other end."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    for name in ("NO_COLOR", "PYTHONDONTWRITEBYTECODE"):  # as installed: compiled once
        environment.pop(name, None)
    program = subprocess.Popen(
        [sys.executable, "-m", "brrrtop", "demo", scenario],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    return program, ours


def read_for(ours: int, until_s: float) -> bytes:
    """What the program writes until then, or until it has nothing more to say for 50 ms."""
    left = until_s - time.perf_counter()
    if left <= 0 or not select.select([ours], [], [], min(left, 0.05))[0]:
        return b""
    try:
        return os.read(ours, 1 << 16)
    except OSError:
        return b""


def first_frame_s(scenario: str, columns: int, rows: int) -> tuple[float, float]:
    """From the start of the process to the verdict on the terminal: wall, and CPU time.

    Raises:
        SystemExit: It did not come up within 20 s.
    """
    begun = time.perf_counter()
    program, ours = started(scenario, columns, rows)
    written = b""
    try:
        while time.perf_counter() - begun < 20:
            written += read_for(ours, begun + 20)
            if any(word in written for word in READY):
                return time.perf_counter() - begun, cpu_s(program.pid)
    finally:
        ended(program, ours)
    raise SystemExit(f"no frame within 20 s; it wrote {written[-300:]!r}")


def cpu_share(scenario: str, columns: int, rows: int, seconds: float) -> tuple[float, float]:
    """CPU time over wall time once it is up, and bytes a second written to the terminal."""
    program, ours = started(scenario, columns, rows)
    try:
        settled = time.perf_counter() + 3
        while time.perf_counter() < settled:
            read_for(ours, settled)
        before_s, begun, written = cpu_s(program.pid), time.perf_counter(), 0
        while time.perf_counter() < begun + seconds:
            written += len(read_for(ours, begun + seconds))
        used_s, wall_s = cpu_s(program.pid) - before_s, time.perf_counter() - begun
    finally:
        ended(program, ours)
    return used_s / wall_s, written / wall_s


def cpu_s(pid: int) -> float:
    """User and system time that a process has taken."""
    return sum(map(int, proc.stat(pid)[11:13])) / proc.TICKS_PER_S


def ended(program: subprocess.Popen[bytes], ours: int) -> None:
    """Quits as a person would, and makes sure of it."""
    try:
        os.write(ours, b"q")
        deadline = time.perf_counter() + 5
        while program.poll() is None and time.perf_counter() < deadline:
            read_for(ours, deadline)
    finally:
        if program.poll() is None:
            program.kill()
        program.wait()
        os.close(ours)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="?", default="healthy")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", default="120x40")
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    columns, rows = (int(part) for part in given.size.split("x"))
    starts = [first_frame_s(given.scenario, columns, rows) for _ in range(given.repeat)]
    walls, used = (sorted(times) for times in zip(*starts, strict=True))
    middle = len(starts) // 2
    share, bytes_per_s = cpu_share(given.scenario, columns, rows, given.seconds)
    print(
        json.dumps(
            {
                "scenario": given.scenario,
                "size": given.size,
                "first_frame_s": {"best": walls[0], "median": walls[middle]},
                "first_frame_cpu_s": {"best": used[0], "median": used[middle]},
                "cpu_share": share,
                "terminal_bytes_per_s": round(bytes_per_s),
                "within": used[middle] <= FIRST_FRAME_CPU_S and share <= CPU_SHARE,
            }
        )
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
