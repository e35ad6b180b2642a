"""The stopwatch that each of these programs keeps for itself, and the options that they share."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

args = Namespace(device="cuda", tiny=False, data=Path("/tmp/brrrtop-runs"))
"""Of the command line; set before a program begins."""


def size(full: Any, tiny: Any) -> Any:
    """One of the two: tiny for a check on a CPU."""
    return tiny if args.tiny else full


CUT_NS = 250_000_000
"""A long phase is written in pieces of about this, so that it can be cut to the time watched."""
SHORT_NS = 20_000_000
"""Intervals below it come too many to keep; their sums are kept, a piece of 100 ms for all of them."""
WARM_NS, WARM_STEPS = 3_000_000_000, 5
"""It is warm so long after its first step, and after so many."""

Interval = tuple[str, int, int, int, int, int]
"""Kind, start and end in ns (time of day), of it ns waited for data, of those for data that the loop makes
itself, steps that ended in it."""


class Clock:
    """Every moment is in one phase; `other` where the program names none."""

    def __init__(self) -> None:
        self._intervals: list[Interval] = []
        self._kinds = ["other"]
        self._start = self._opened = self._first_step = 0
        self._waited = self._by_hand = self._steps = self._all_steps = 0
        self._ready_ns: int | None = None
        self._path: Path | None = None
        self._limit_ns = 1 << 62

    now = staticmethod(time.perf_counter_ns)

    def open(self, name: str, path: Path | None, seconds: float) -> None:
        """Begins; writes `path` after so many seconds of steps, or at SIGUSR2, and ends the process."""
        self._name, self._path, self._limit_ns = name, path, int(seconds * 1e9)
        self._start = self._opened = self.now()
        self._of_day = time.time_ns() - self._opened
        signal.signal(signal.SIGUSR2, lambda *_: self.finish())

    @contextlib.contextmanager
    def phase(self, kind: str) -> Iterator[None]:
        self.enter(kind)
        try:
            yield
        finally:
            self.leave()

    def enter(self, kind: str) -> None:
        self._cut()
        self._kinds.append(kind)

    def leave(self) -> None:
        self._cut()
        self._kinds.pop()

    def waited(self, since_ns: int, by_hand: bool = False) -> None:
        """The loop had no batch from then until now."""
        now = self.now()
        self._waited += now - since_ns
        self._by_hand += (now - since_ns) * by_hand
        if now - self._start > CUT_NS:
            self._cut()

    def step(self) -> None:
        """A step ended."""
        now = self.now()
        self._steps += 1
        self._all_steps += 1
        self._first_step = self._first_step or now
        warm = now - self._first_step > WARM_NS and self._all_steps >= WARM_STEPS
        if warm and self._ready_ns is None:
            self._ready_ns = now + self._of_day
            print("ready", flush=True)
        if now - self._start > CUT_NS:
            self._cut()
        if now - self._first_step > self._limit_ns:
            self.finish()

    def _cut(self) -> None:
        """The interval up to now ends."""
        now = self.now()
        of_day = (self._start + self._of_day, now + self._of_day)
        figures = (min(self._waited, now - self._start), self._by_hand, self._steps)
        self._intervals.append((self._kinds[-1], *of_day, *figures))
        self._start, self._waited, self._by_hand, self._steps = now, 0, 0, 0

    def finish(self) -> None:
        """Writes what it measured and ends the process, worker processes or not."""
        self._cut()
        if self._path is not None:
            intervals = merged(self._intervals)
            sums: dict[str, float] = {}
            for kind, start, end, *_ in intervals:
                sums[kind] = sums.get(kind, 0.0) + (end - start) / 1e9
            waited_s = sum(one[3] for one in intervals) / 1e9
            result: dict[str, Any] = {
                "program": self._name, "ready_ns": self._ready_ns, "steps": self._all_steps, "seconds": sums,
                "waited_s": waited_s, "fields": ["kind", "start_ns", "end_ns", "waited_ns", "by_hand_ns", "steps"],
                "intervals": intervals,
            }  # fmt: skip
            self._path.write_text(json.dumps(result, separators=(",", ":")))
        os._exit(0)


def merged(intervals: list[Interval]) -> list[Interval]:
    """Short intervals as one of each kind for every 100 ms, end to end: their sums are what they were."""
    result: list[Interval] = []
    pending: dict[str, list[int]] = {}
    began = 0

    def release() -> None:
        at = began
        for kind, (length, *figures) in pending.items():
            result.append((kind, at, at + length, *figures))  # type: ignore[arg-type]
            at += length
        pending.clear()

    for kind, start, end, *figures in itertools.chain(intervals, [("", 0, 1 << 62, 0, 0, 0)]):
        if pending and (end - start > SHORT_NS or start - began > 5 * SHORT_NS):
            release()
        if not kind or end == start:
            continue
        if end - start > SHORT_NS:
            result.append((kind, start, end, *figures))  # type: ignore[arg-type]
            continue
        began = began if pending else start
        sums = pending.setdefault(kind, [0, 0, 0, 0])
        for at, value in enumerate((end - start, *figures)):
            sums[at] += value
    return result


clock = Clock()
