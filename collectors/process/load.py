"""Says what the monitor itself costs the host, and how busy the trainer's CPU is."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from collectors.process import proc
from collectors.process.loader_workers import LoaderWorkers
from collectors.protocol.frames import GAUGE
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
        """The share since the call before."""
        now = self._stat()
        if now is None:
            return None
        now_s, spent_s = time.monotonic(), proc.cpu_s(now)
        before, self._before = self._before, (now_s, spent_s)
        if before is None or now_s <= before[0]:
            return None
        return max(0.0, spent_s - before[1]) / (now_s - before[0])

    @property
    def rss_bytes(self) -> int | None:
        now = self._stat()
        return None if now is None else int(now[21]) * _PAGE_BYTES

    @property
    def running(self) -> bool:
        """Whether it is still the same process, and not a zombie."""
        now = self._stat()
        return now is not None and now[0] not in "ZX"

    @property
    def age_s(self) -> float | None:
        """Since it was started."""
        now = self._stat()
        return None if now is None else proc.age_s(int(now[19]))

    @property
    def stopped(self) -> bool:
        """Whether it stands still until somebody lets it go on."""
        now = self._stat()
        return now is not None and now[0] in "Tt"


class HostLoad:
    """Gauges of this process and of the trainer."""

    def __init__(self, trainer: int | None = None) -> None:
        self._pid = trainer
        self._own = {os.getpid(): CpuShare(os.getpid())}
        self._trainer = CpuShare(trainer)
        self._end = proc.ProcessEnd(trainer) if trainer is not None else None
        self._workers = LoaderWorkers(trainer) if trainer is not None else None
        self._told_end: str | None = None

    def tell_end(self, says: str) -> None:
        """Somebody who waited for the trainer knows that it ended, and how."""
        self._told_end = says

    @property
    def trainer_running(self) -> bool | None:
        """None when there is no trainer to look at."""
        if self._told_end is not None:
            return False
        return None if self._pid is None else self._trainer.running

    @property
    def trainer_age_s(self) -> float | None:
        """Since the trainer was started; None when there is none to look at."""
        return self._trainer.age_s

    @property
    def trainer_stopped(self) -> str | None:
        """That a signal or a debugger keeps the trainer from running, with what helps."""
        if not self._trainer.stopped:
            return None
        return f"the trainer is stopped by a signal or a debugger; to go on: kill -CONT {self._pid}"

    @property
    def trainer_end(self) -> str:
        """That the trainer exited, and how as far as anybody can know, in words."""
        if self._told_end is not None:
            return self._told_end
        how = self._end.says() if self._end is not None else None
        return f"the trainer (pid {self._pid}) exited" + (f": {how}" if how else "")

    @property
    def status(self) -> dict[str, str | None]:
        """What the trainer's loader workers do, for a status frame; empty without a trainer."""
        return {} if self._workers is None else {"workers": self._workers.says}

    def close(self) -> None:
        """Lets go of the trainer."""
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
        ]
        if self._workers is not None:
            self._workers.sample()
            figures += self._workers.figures.items()
        at_ns = time.time_ns() >> 20 << 20
        rows = [(at_ns, value, -1, int(metric)) for metric, value in figures if value is not None]
        return np.array(rows, GAUGE)

    def _monitor(self, pids: tuple[int, ...]) -> list[tuple[Metric, float | None]]:
        """The sums over its processes; one that has just ended is in neither, and one that has just
        begun has no share: a tick of its clock within microseconds would be hundreds of cores."""
        known = set(self._own)
        self._own = {pid: self._own.get(pid) or CpuShare(pid) for pid in pids}
        amounts: dict[Metric, list[float | None]] = {
            Metric.MONITOR_CPU_SHARE: [
                one.share() if pid in known else None for pid, one in self._own.items()
            ],
            Metric.MONITOR_RSS_BYTES: [one.rss_bytes for one in self._own.values()],
        }
        return [
            (metric, sum(value for value in values if value is not None))
            for metric, values in amounts.items()
            if values[0] is not None
        ]
