"""Samples where the training thread stands, while it is asked to."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from types import CodeType, FrameType

from ..fault_guard import FaultGuard
from ..library import STACK, Native, thread_number
from .probe import Probe, find_imported
from .steps import Steps

PERIOD_MS, _SLOWEST_MS = 25, 500
_SHARE = 0.001
"""Of the training thread's time, at most, while it runs: it has to wait while we have the interpreter."""
_HANDOVER_NS = 150_000
"""What the interpreter's way to us and back costs the thread that had it, beside the sample itself
(240 us a sample in all, 110 of them ours: one every 25 ms in a loop on a CPU; benchmarks/upkeep.py)."""
_NEWEST = 0.1


class Stacks(Probe):
    """One STACK mark a sample; its value is the time since the sample before, 0 for the first.

    The name is `file:line function` of the innermost frame of the user's own code; then, if it is
    another, ` > file:line function` of the innermost of all; then, if readable, ` | source line`.
    A CUDA wait inside `.item()` has no Python frame of its own: the source line shows it.
    """

    name = "stacks"

    def __init__(self, native: Native, fence: FaultGuard, steps: Steps) -> None:
        super().__init__(native, fence)
        self._steps = steps
        self.sampling = False
        self._cost_ns, self._running, self._ran_ns = 0.0, 1.0, 0
        self._last_ns = 0
        self._library_dirs: tuple[str, ...] = ()
        self._names: dict[tuple[CodeType, int, CodeType, int], int] = {}

    def turn(self, on: bool) -> None:
        """Begin or end sampling."""
        self.sampling, self._last_ns = on, 0
        self._cost_ns = float(_HANDOVER_NS)
        self._names.clear()  # it holds code objects, which the trainer may want to drop
        self._library_dirs = library_dirs() if on else ()

    def clear(self) -> None:
        self.turn(False)

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
        """Mark where the training thread is at this moment."""
        frames, ident = sys._current_frames(), self._steps.thread_ident
        main = threading.main_thread().ident or 0
        if ident not in frames:
            ident = main
        frame = frames.pop(ident, None)
        frames.clear()
        if frame is None:
            return
        name_id = self._name(frame)
        del frame  # held, frames would keep the trainer's tensors alive
        value = now_ns - self._last_ns if self._last_ns else 0
        self._last_ns = now_ns
        # Of the main thread only: to ask it of one that has just ended may crash.
        known, ran_ns = value and ident == main, self._ran_ns
        self._ran_ns = ran_so_far_ns(ident) if ident == main else 0
        self._running = min((self._ran_ns - ran_ns) / value, 1.0) if known else 1.0
        self.native.mark(STACK, now_ns, now_ns, value, name_id, thread_number(ident))

    def _name(self, leaf: FrameType) -> int:
        user = self._users(leaf)
        key = (user.f_code, user.f_lineno or 0, leaf.f_code, leaf.f_lineno or 0)
        name_id = self._names.get(key)
        if name_id is None:
            name = place(user.f_code, key[1])
            if leaf is not user:
                name += " > " + place(leaf.f_code, key[3])
            source = linecache.getline(user.f_code.co_filename, key[1], user.f_globals).strip()
            if source:
                name += " | " + source[:120]
            if len(self._names) >= 1024:
                self._names.clear()
            name_id = self._names[key] = self.native.name(name)
        return name_id

    def _users(self, leaf: FrameType) -> FrameType:
        """The innermost frame of the user's own code; the innermost of all where there is none."""
        frame: FrameType | None = leaf
        while frame is not None:
            if not frame.f_code.co_filename.startswith(self._library_dirs):
                return frame
            frame = frame.f_back
        return leaf


def library_dirs() -> tuple[str, ...]:
    """Beginnings of file names that are not the user's own code."""
    folders = {os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(__file__))}
    folders.update(e for e in sys.path if "site-packages" in e or "dist-packages" in e)
    torch_file = find_imported("torch", "__file__")
    if torch_file is not None:
        folders.add(os.path.dirname(torch_file))
    return ("<frozen", "<string>", *(found_dir.rstrip(os.sep) + os.sep for found_dir in folders))


def ran_so_far_ns(ident: int) -> int:
    """What a thread of this process, which must be alive, has had of a processor."""
    return time.clock_gettime_ns(time.pthread_getcpuclockid(ident))


def place(code: CodeType, line: int) -> str:
    """`zoo/train.py:88 train_step`: the last two parts of the path, for what fits a screen."""
    path = os.sep.join(code.co_filename.rsplit(os.sep, 2)[-2:])
    return f"{path}:{line} {getattr(code, 'co_qualname', code.co_name)}"
