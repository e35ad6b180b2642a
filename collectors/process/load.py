"""Says what the monitor itself costs the host, and how busy the trainer's CPU is."""

import os
import time
from collections import Counter, deque
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from collectors.process import candidates, proc
from collectors.protocol.frames import GAUGE, rounded_share, time_of_gauges
from collectors.vocabulary import Metric

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class CpuShare:
    """CPU time of one process over wall time; 1 is one core. None, or False: it has ended, or is none."""

    def __init__(self, pid: int | None) -> None:
        self._pid = pid
        self._start: str | None = None
        self._before: tuple[float, float] | None = None
        self.share()

    def _stat(self) -> list[str] | None:
        """Its fields in /proc, as long as it is the same process."""
        now = proc.stat(self._pid) if self._pid is not None else []
        if now and self._start is None:
            self._start = now[19]
        return now if now and now[19] == self._start else None

    def share(self) -> float | None:
        now = self._stat()
        if now is None:
            return None
        now_s, spent_s = time.monotonic(), proc.cpu_s(now)
        before, self._before = self._before, (now_s, spent_s)
        if before is None or now_s <= before[0]:
            return None
        return rounded_share(max(0.0, spent_s - before[1]) / (now_s - before[0]))

    @property
    def rss_bytes(self) -> int | None:
        now = self._stat()
        return None if now is None else int(now[21]) * _PAGE_BYTES

    @property
    def running(self) -> bool:
        now = self._stat()
        return now is not None and now[0] not in "ZX"

    @property
    def age_s(self) -> float | None:
        now = self._stat()
        return None if now is None else proc.age_s(int(now[19]))

    @property
    def stopped(self) -> bool:
        """Whether it stands still until somebody lets it go on."""
        now = self._stat()
        return now is not None and now[0] in "Tt"


class HostLoad:
    def __init__(self, trainer: int | None = None) -> None:
        self._pid = trainer
        self._own = {os.getpid(): CpuShare(os.getpid())}
        self._trainer = CpuShare(trainer)
        self._end = proc.ProcessEnd(trainer) if trainer is not None else None
        self._workers = LoaderWorkers(trainer) if trainer is not None else None
        self._told_end: str | None = None

    def tell_end(self, message: str) -> None:
        """Somebody who waited for the trainer knows that it ended, and how."""
        self._told_end = message

    @property
    def trainer_running(self) -> bool | None:
        if self._told_end is not None:
            return False
        return None if self._pid is None else self._trainer.running

    @property
    def trainer_age_s(self) -> float | None:
        return self._trainer.age_s

    @property
    def trainer_stopped(self) -> str | None:
        """That a signal or a debugger keeps the trainer from running, with what helps."""
        if not self._trainer.stopped:
            return None
        return f"the trainer is stopped by a signal or a debugger; to go on: kill -CONT {self._pid}"

    @property
    def trainer_end(self) -> str:
        if self._told_end is not None:
            return self._told_end
        how = self._end.describe() if self._end is not None else None
        return f"the trainer (pid {self._pid}) exited" + (f": {how}" if how else "")

    @property
    def status(self) -> dict[str, str | None]:
        return {} if self._workers is None else {"workers": self._workers.message}

    def close(self) -> None:
        if self._end is not None:
            self._end.close()

    def sample(self, helpers: Iterable[int] = ()) -> npt.NDArray[np.void]:
        """Readings since the call before, as an array of `wire.GAUGE`; device -1 is the host.

        Args:
            helpers: Processes that do a part of the monitor's work, which is counted as its own.
        """
        figures = [
            *self._monitor((os.getpid(), *helpers)),
            (Metric.TRAINER_CPU_SHARE, self._trainer.share()),
            (Metric.TRAINER_CORES, _cores(self._pid)),
        ]
        if self._workers is not None:
            self._workers.sample()
            figures += self._workers.figures.items()
        at_ns = time_of_gauges()
        rows = [(at_ns, value, -1, int(metric)) for metric, value in figures if value is not None]
        return np.array(rows, GAUGE)

    def _monitor(self, pids: tuple[int, ...]) -> list[tuple[Metric, float | None]]:
        """The sums over its processes; one that has just ended is in neither, and one that has just
        begun has no share: a tick of its clock within microseconds would be hundreds of cores."""
        known = set(self._own)
        self._own = {pid: self._own.get(pid) or CpuShare(pid) for pid in pids}
        amounts: dict[Metric, list[float | None]] = {
            Metric.MONITOR_CPU_SHARE: [
                share.share() if pid in known else None for pid, share in self._own.items()
            ],
            Metric.MONITOR_RSS_BYTES: [share.rss_bytes for share in self._own.values()],
        }
        return [
            (metric, sum(value for value in values if value is not None))
            for metric, values in amounts.items()
            if values[0] is not None
        ]


def _cores(pid: int | None) -> int | None:
    try:
        return None if pid is None else len(os.sched_getaffinity(pid))
    except OSError:
        return None


LOOKS = 8
"""Seconds that a word rests on; with fewer looks nothing is said."""
LEAST_LOOKS = 3
YOUNG_S = 0.5
"""A child that is about to run another program has its parent's command line until it does."""
MOST = 64
"""Workers looked at; more say no more."""
ALL_EVERY = 4  # looks: a trainer may have hundreds of threads
DISK, BUSY, ASLEEP = "D", "R", "S"
_WORDS = {DISK: "in disk wait", BUSY: "busy on their CPUs", ASLEEP: "asleep"}


class LoaderWorkers:
    """Looks at the children of process `pid` that run what it runs."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._line = _cmdline(pid)
        self._looks, self._parents = 0, [str(pid)]
        self._known: dict[int, bool] = {}
        self._seen: deque[Counter[str]] = deque(maxlen=LOOKS)
        self._count: int | None = None
        self._at_s = 0.0
        self._spent_s: dict[int, float] = {}
        self._cores: float | None = None

    def sample(self) -> None:
        """Takes down the states of this moment, and the CPU time since the last one."""
        children = self._children()
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
    def message(self) -> str | None:
        if len(self._seen) < LEAST_LOOKS:
            return None
        states = self._states
        if not states:
            return None
        state, count = states.most_common(1)[0]
        if 2 * count <= states.total() or state not in _WORDS:
            return None
        return f"loader workers {_WORDS[state]}"

    def _children(self) -> list[int]:
        """Of any thread: a loader may be started by each of them. Empty once the trainer is gone."""
        folder = f"/proc/{self._pid}/task"
        threads = self._parents
        if self._looks % ALL_EVERY == 0:
            with suppress(OSError):
                threads = os.listdir(folder)
        self._looks += 1
        found = {task: proc.read(f"{folder}/{task}/children").split() for task in threads}
        self._parents = [str(self._pid), *(task for task, pids in found.items() if pids)]
        return [int(pid) for pids in found.values() for pid in pids]

    def _is_worker(self, pid: int) -> bool:
        line = _cmdline(pid)
        if any(mark in line for mark in candidates.HELPERS):
            return False
        return line == self._line or any(mark in line for mark in candidates.SPAWNED)


def _cmdline(pid: int) -> str:
    try:
        return " ".join(proc.cmdline(pid))
    except OSError:
        return ""


def _age_s(pid: int) -> float:
    stat = proc.stat(pid)
    return max(0.0, proc.age_s(int(stat[19]))) if stat else 0.0
