"""Samples where the training thread stands, while a monitor watches."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from ..library import STACK, thread_number
from .places import Places
from .probe import Probe
from .steps import Steps

PERIOD_MS, _SLOWEST_MS = 25, 500
_SHARE = 0.001
"""Of the training thread's time, at most, while it runs: it has to wait while we have the interpreter."""
_HANDOVER_NS = 150_000
"""What the interpreter's way to us and back costs the thread that had it, beside the sample itself
(240 us a sample in all, 110 of them ours: one every 25 ms in a loop on a CPU)."""
_NEWEST = 0.1
_FINEST_NS = 1 << 17
"""A sample lies anywhere in its period; what jitters below this fills recordings."""


class Stacks(Probe):
    """One STACK mark a sample; its value is the time since the sample before, 0 for the first.

    The name is that of `Places`. A CUDA wait inside `.item()` has no Python frame of its own: the
    source line shows it.
    """

    name = "stacks"

    def __init__(self, *given: Any, steps: Steps) -> None:
        super().__init__(*given)
        self._steps = steps
        self.sampling = False
        self._cost_ns, self._running, self._ran_ns = 0.0, 1.0, 0
        self._last_ns = 0

    @property
    def places(self) -> Places:
        return self._steps.places

    def place(self) -> None:
        self.places.learn()
        # Without the interpreter's lock frames of another thread may end while they are walked.
        locked = getattr(sys, "_is_gil_enabled", lambda: True)()
        if locked and not self.sampling:
            self.sampling, self._last_ns = True, 0
            self._cost_ns = float(_HANDOVER_NS)

    def clear(self) -> None:
        self.sampling = False
        self.places.forget()

    def wake(self, now_ns: int) -> None:
        self.places.send(now_ns)

    @property
    def period_ms(self) -> int:
        """Until the next sample: so long that all of them together cost the trainer `_SHARE`."""
        return int(min(max(self._cost_ns / _SHARE / 1e6, PERIOD_MS), _SLOWEST_MS))

    def weigh(self, worked_ns: int) -> float:
        """What so much of our work, or a sample, took from the training thread, in ns: nothing where
        that waits (for data, a file, another rank), all of it where it runs or nobody knows."""
        cost_ns = (worked_ns + _HANDOVER_NS) * (self._running if self.sampling else 1.0)
        self._cost_ns += _NEWEST * (cost_ns - self._cost_ns)
        return cost_ns

    def sample(self, now_ns: int) -> None:
        """Mark where the training thread is at this moment, to `_FINEST_NS`."""
        now_ns -= now_ns % _FINEST_NS
        frames, ident = sys._current_frames(), self._steps.thread_ident
        main = threading.main_thread().ident or 0
        if ident not in frames:
            ident = main
        frame = frames.pop(ident, None)
        frames.clear()
        if frame is None:
            return
        name_id = self.places.name(frame)
        del frame  # held, frames would keep the trainer's tensors alive
        value = now_ns - self._last_ns if self._last_ns else 0
        self._last_ns = now_ns
        # Of the main thread only: to ask it of one that has just ended may crash.
        known, ran_ns = value and ident == main, self._ran_ns
        self._ran_ns = ran_so_far_ns(ident) if ident == main else 0
        self._running = min((self._ran_ns - ran_ns) / value, 1.0) if known else 1.0
        self.native.mark(STACK, now_ns, now_ns, value, name_id, thread_number(ident))


def ran_so_far_ns(ident: int) -> int:
    """What a thread of this process, which must be alive, has had of a processor."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))
