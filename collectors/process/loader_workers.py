"""What the processes that load a trainer's data are doing: waiting for a disk, computing, asleep.

One look at their states a second costs two small reads in /proc each; a word needs several looks.
"""

from __future__ import annotations

from collections import Counter, deque
from pathlib import Path

from collectors.process import candidates, proc

LOOKS = 8
"""Seconds that a word rests on; with fewer looks nothing is said."""
LEAST_LOOKS = 3
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

    def sample(self) -> None:
        """Takes down the states of this moment."""
        children = _children(self._pid)
        self._known = {pid: self._known.get(pid, False) for pid in children if pid in self._known}
        for pid in children:
            if pid not in self._known:
                self._known[pid] = self._is_worker(pid)
        workers = [pid for pid, is_one in self._known.items() if is_one][:MOST]
        self._seen.append(Counter(state for pid in workers if (state := _state(pid))))

    @property
    def says(self) -> str | None:
        """`loader workers in disk wait`; None without workers, or while most do different things."""
        if len(self._seen) < LEAST_LOOKS:
            return None
        states = sum(self._seen, Counter[str]())
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


def _state(pid: int) -> str:
    try:
        return proc.stat(pid)[0]
    except (OSError, ValueError, IndexError):
        return ""
