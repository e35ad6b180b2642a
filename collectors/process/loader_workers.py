"""What the processes that load a trainer's data are doing: waiting for a disk, computing, asleep.

One look a second at their states and CPU times costs one small read in /proc each; a word needs
several looks.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from pathlib import Path

from collectors.process import candidates, proc
from collectors.vocabulary import Metric

LOOKS = 8
"""Seconds that a word rests on; with fewer looks nothing is said."""
LEAST_LOOKS = 3
YOUNG_S = 0.5
"""A child that is about to run another program has its parent's command line until it does."""
MOST = 64
"""Workers looked at; more say no more."""
DISK, BUSY, ASLEEP = "D", "R", "S"
_WORDS = {DISK: "in disk wait", BUSY: "busy on their CPUs", ASLEEP: "asleep"}


class LoaderWorkers:
    """Looks at the children of process `pid` that run what it runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._line = _cmdline(pid)
        self._known: dict[int, bool] = {}
        self._seen: deque[Counter[str]] = deque(maxlen=LOOKS)
        self._count: int | None = None
        self._at_s = 0.0
        self._spent_s: dict[int, float] = {}
        self._cores: float | None = None

    def sample(self) -> None:
        """Takes down the states of this moment, and the CPU time since the last one."""
        children = _children(self._pid)
        self._known = {pid: self._known.get(pid, False) for pid in children if pid in self._known}
        for pid in children:
            if pid not in self._known and _age_s(pid) >= YOUNG_S:
                self._known[pid] = self._is_worker(pid)
        workers = [pid for pid, is_one in self._known.items() if is_one]
        if workers or self._count is not None:
            self._count = len(workers)
        stats = {pid: stat for pid in workers[:MOST] if (stat := proc.stat(pid))}
        self._seen.append(Counter(stat[0] for stat in stats.values()))
        self._cores = self._cores_since({pid: proc.cpu_s(stat) for pid, stat in stats.items()})

    def _cores_since(self, spent_s: dict[int, float]) -> float | None:
        """CPU time over wall time since the look before, of workers that were there then."""
        before, self._spent_s = self._spent_s, spent_s
        at_s, self._at_s = self._at_s, time.monotonic()
        both = [max(0.0, spent_s[pid] - before[pid]) for pid in spent_s if pid in before]
        return sum(both) / (self._at_s - at_s) if both and self._at_s > at_s else None

    @property
    def figures(self) -> dict[Metric, float]:
        """How many there are and what they do; empty for a trainer that never had any."""
        if self._count is None:
            return {}
        result: dict[Metric, float] = {Metric.LOADER_WORKERS: self._count}
        if self._cores is not None:
            result[Metric.LOADER_CPU_SHARE] = self._cores
        states = self._states
        if states.total() and len(self._seen) >= LEAST_LOOKS:
            result[Metric.LOADER_BUSY_SHARE] = states[BUSY] / states.total()
            result[Metric.LOADER_DISK_SHARE] = states[DISK] / states.total()
        return result

    @property
    def _states(self) -> Counter[str]:
        return sum(self._seen, Counter[str]())

    @property
    def says(self) -> str | None:
        """`loader workers in disk wait`; None without workers, or while most do different things."""
        if len(self._seen) < LEAST_LOOKS:
            return None
        states = self._states
        if not states:
            return None
        state, count = states.most_common(1)[0]
        if 2 * count <= states.total() or state not in _WORDS:
            return None
        return f"loader workers {_WORDS[state]}"

    def _is_worker(self, pid: int) -> bool:
        line = _cmdline(pid)
        if any(mark in line for mark in candidates.HELPERS):
            return False
        return line == self._line or any(mark in line for mark in candidates.SPAWNED)


def _children(pid: int) -> list[int]:
    """Of all threads: a loader may be started by any of them. Empty once `pid` is gone."""
    pids: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            pids += [int(word) for word in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return pids
    return pids


def _cmdline(pid: int) -> str:
    try:
        return " ".join(proc.cmdline(pid))
    except OSError:
        return ""


def _age_s(pid: int) -> float:
    """0 where it is gone."""
    stat = proc.stat(pid)
    return max(0.0, proc.age_s(int(stat[19]))) if stat else 0.0
