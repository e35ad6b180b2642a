"""`brrrtop attach PID --json` on a job: when it names which rank for what, and what it takes itself."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from watched import ROOT, monitor_environment

STOP_LIMIT_S = 15.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Named:
    """The rank that others wait for, as one report has it; `rank` None: nobody."""

    after_s: float
    """Since the command was started."""
    rank: int | None
    cause: str | None = None
    place: str | None = None
    late_ms: float | None = None
    slow: bool = False


class Monitor:
    """One that runs, and what it has reported.

    Args:
        pid: A rank, or torchrun.
        words: Further options.
    """

    def __init__(
        self, pid: int, args: argparse.Namespace, errors: Path, words: Sequence[str] = ()
    ) -> None:
        command = [sys.executable, "-m", "brrrtop", "attach", str(pid), "--yes", "--json", *words]
        self.errors = errors
        self.began_s = time.perf_counter()
        with errors.open("wb") as text:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=monitor_environment(args.site), stdout=subprocess.PIPE,
                stderr=text, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.named: list[Named] = []
        """Wherever it changed."""
        self.last: dict[str, Any] = {}
        self.reports = 0
        self.compared_s: float | None = None
        """When ranks were compared first."""
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            report, now_s = json.loads(line), time.perf_counter() - self.began_s
            with self._changed:
                self._take(report, now_s)
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _take(self, report: dict[str, Any], now_s: float) -> None:
        self.reports += 1
        self.last = report
        together = (report.get("job") or {}).get("together_ms")
        if together and self.compared_s is None:
            self.compared_s = now_s
        waited = report.get("peers_waited_for") or {"rank": None, "slow": False}
        one = Named(
            now_s, waited["rank"], waited.get("cause"), waited.get("place"),
            waited.get("late_by_ms"), waited["slow"],
        )  # fmt: skip
        before = self.named[-1] if self.named else Named(0.0, None)
        same = (one.rank, one.cause, one.place) == (before.rank, before.cause, before.place)
        if not same:
            self.named.append(one)

    def named_s(self, rank: int, cause: str) -> float | None:
        """When it first named that rank with that cause."""
        hits = (n.after_s for n in self.named if n.slow and (n.rank, n.cause) == (rank, cause))
        return next(hits, None)

    def wait_until_named(self, rank: int, cause: str, limit_s: float) -> float | None:
        """Seconds from the command's start to the first report that named that rank with that cause."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.named_s(rank, cause) is not None or self._is_over,
                limit_s - (time.perf_counter() - self.began_s),
            )
            return self.named_s(rank, cause)

    def wait_until_compared(self, limit_s: float) -> float | None:
        """Seconds from the command's start to the first report in which ranks are compared."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.compared_s is not None or self._is_over,
                limit_s - (time.perf_counter() - self.began_s),
            )
            return self.compared_s

    @property
    def _is_over(self) -> bool:
        return not self._reader.is_alive() or self.process.poll() is not None

    def cpu_s(self) -> float | None:
        """Processor time so far; None where it has ended."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def threads_s(self) -> dict[str, float]:
        """Processor time so far of each thread, the main one first, the others as they began."""
        spent = {}
        for task in Path(f"/proc/{self.process.pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
                spent[task.name] = (int(fields[11]) + int(fields[12])) * TICK_S
        return dict(sorted(spent.items(), key=lambda one: int(one[0])))

    def rss_bytes(self) -> int | None:
        """The most it has had resident."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        return next(
            (int(line.split()[1]) << 10 for line in status.splitlines() if line[:6] == "VmHWM:"),
            None,
        )

    def stop(self) -> dict[str, Any]:
        """`^C`; then what it has reported in all."""
        self.process.send_signal(signal.SIGINT)
        hung = False
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            hung = True
            self.kill()
        self._reader.join(5)
        return {
            "reports": self.reports, "compared_s": self.compared_s, "hung": hung,
            "named": [asdict(one) for one in self.named], "exit": self.process.returncode,
            "ranks": [
                {k: row.get(k) for k in ("rank", "step_ms", "late_by_ms", "waits_for_peers", "why",
                                         "late_because", "grown_ms")}
                for row in self.last.get("ranks", ())
            ],
            "overhead": self.last.get("overhead"),
            "stderr": self.errors.read_text("utf-8", "replace")[-400:],
        }  # fmt: skip

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
