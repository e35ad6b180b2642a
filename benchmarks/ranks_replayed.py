"""What the monitor itself takes while it watches many ranks: recordings that come in again as if live.

    python benchmarks/ranks_replayed.py RANK0.brrr RANK1.brrr … [--copies 4] [--seconds 30] [--rounds 3]
        [--show json,screen] [--pause 3]

Each recording is played at its own pace through the live path (`LiveSource`, `Session`, `Live`, then the
screen of 120x40 at 2 Hz or a line of JSON a second), so many times side by side, and over and over, each time with later
times. The records are those of the trainers; the bursts come when they came then, whatever the governor orders.
Left out is what a socket, NVML and a trainer's own /proc cost. CPU is that of the
monitor's process, user and system, after `SETTLE_S`; the memory is the most that it had resident.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SETTLE_S = 12.0
"""The start is over, and the second burst has come."""
SIZE = (40, 120)
CORRELATIONS = 1 << 22
"""More than a recording has."""
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


# --- in the monitor's process --------------------------------------------------------------------


class Replayed:
    """An agent that says what one did once, over and over.

    Args:
        path: The recording.
        rank: Which rank it is taken for.
        world: Of how many.
        began_ns: When it begins now.
    """

    closed = False

    def __init__(self, path: str, rank: int, world: int, began_ns: int) -> None:
        from brrrtop.sources.registry import open_source
        from collectors.protocol.frames import DTYPES, Kind

        source = open_source(path)
        frames = list(source.frames())
        source.close()
        hello = next(frame.body for frame in frames if frame.kind == Kind.HELLO)
        pid = os.getpid()
        self.hello = {**hello, "rank": rank, "world": world, "local_rank": rank, "pid": pid}
        self._again = frozenset(DTYPES)
        kept = {*self._again, Kind.NAMES, Kind.OPS, Kind.LOSS, Kind.DEVICE}
        self._frames = [frame for frame in frames if frame.kind in kept]
        for frame in self._frames:
            if frame.kind == Kind.DEVICE:
                frame.body["uuid"] = f"GPU-{rank}"
        self.first_ns, self.last_ns = frames[0].sent_ns, frames[-1].sent_ns
        self.period_ns = 0
        self._began_ns = began_ns
        self._next = self._lap = 0

    def frames(self) -> Iterator[Any]:
        """What has come due."""
        now_ns = time.time_ns()
        while True:
            later_ns = self._began_ns + self._lap * self.period_ns - self.first_ns
            while self._next < len(self._frames):
                frame = self._frames[self._next]
                if frame.sent_ns + later_ns > now_ns:
                    return
                self._next += 1
                if not self._lap or frame.kind in self._again:
                    yield self._moved(frame, later_ns)
            if self._began_ns + (self._lap + 1) * self.period_ns > now_ns:
                return
            self._next, self._lap = 0, self._lap + 1

    def _moved(self, frame: Any, later_ns: int) -> Any:
        from collectors.protocol.frames import Frame

        body = frame.body
        if frame.kind in self._again:
            body = body.copy()
            for name in body.dtype.names:
                if name in ("start_ns", "end_ns", "time_ns"):
                    body[name] += later_ns
                elif name == "correlation":
                    body[name][body[name] > 0] += self._lap * CORRELATIONS
        return Frame(frame.kind, body, frame.sent_ns + later_ns, frame.flags)

    def send(self, data: bytes) -> None:
        """It bursts when it did."""

    def close(self) -> None:
        pass


def monitor(args: argparse.Namespace) -> None:
    """Watches until it is told to stop."""
    from brrrtop.cli import live
    from brrrtop.cli.options import Options
    from brrrtop.session.controller import Controller
    from brrrtop.session.driver import Member
    from brrrtop.session.live import Live
    from brrrtop.session.session import Session
    from brrrtop.sources.live import LiveSource

    began_ns = time.time_ns()
    files = args.recordings * args.copies
    agents = [Replayed(path, rank, len(files), began_ns) for rank, path in enumerate(files)]
    first_ns = min(agent.first_ns for agent in agents)
    ranks = []
    for agent in agents:
        agent.first_ns = first_ns
        agent.period_ns = max(one.last_ns for one in agents) - first_ns + round(args.pause * 1e9)
        source = LiveSource(agent, os.getpid())
        rank, controller = agent.hello["rank"], Controller(source)
        one = Member(str(rank), f"rank {rank}", rank, Session(source), controller=controller)
        ranks.append(one)
    job = Live(ranks)
    reports = args.monitor == "json"
    options = Options(verb="attach", json=reports, interval=1.0 if reports else 0.5)
    live.show_driver(job, options, "all ranks of the job")


# --- beside it -----------------------------------------------------------------------------------


def measured(args: argparse.Namespace, show: str) -> dict[str, float]:
    """CPU as a share of a core, and memory in MB, of one monitor.

    Raises:
        RuntimeError: It ended by itself.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    command = [sys.executable, str(Path(__file__).resolve()), "--monitor", show]
    process = subprocess.Popen(
        [*command, "--copies", str(args.copies), "--pause", str(args.pause), *args.recordings],
        stdin=theirs, stdout=subprocess.DEVNULL if show == "json" else theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )  # fmt: skip
    os.close(theirs)
    try:
        written = drained(ours, SETTLE_S)
        before_s, at_s = cpu_s(process.pid), time.perf_counter()
        written += drained(ours, args.seconds)
        spent_s, took_s = cpu_s(process.pid) - before_s, time.perf_counter() - at_s
        if process.poll() is not None:
            raise RuntimeError(written[-2000:].decode("utf-8", "replace"))
        return {"cpu": spent_s / took_s, "rss_mb": rss_mb(process.pid)}
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def drained(terminal: int, seconds: float) -> bytes:
    """What is written meanwhile."""
    end_s, written = time.perf_counter() + seconds, b""
    while (left_s := end_s - time.perf_counter()) > 0:
        if select.select([terminal], [], [], left_s)[0]:
            try:
                written += os.read(terminal, 1 << 16)
            except OSError:  # it has ended
                time.sleep(left_s)
    return written


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(one.split()[1]) / 1000 for one in lines if one[:6] == "VmHWM:"), 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument(
        "--pause", type=float, default=3.0, help="seconds between the end of all and the next lap"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--show", default="json,screen")
    parser.add_argument("--monitor", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.monitor:
        sys.path.insert(0, str(ROOT))
        monitor(args)
        return 0
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        for show in args.show.split(","):
            rows.setdefault(show, []).append(one := measured(args, show))
            print(json.dumps({"show": show, **one}), flush=True)
    for show, many in rows.items():
        middle = {key: statistics.median(one[key] for one in many) for key in many[0]}
        ranks = len(args.recordings) * args.copies
        print(json.dumps({"median": show, "ranks": ranks, **middle}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
