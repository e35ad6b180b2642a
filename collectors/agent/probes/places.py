"""Where the user's own code stands, as names: of other marks, and sampled on the training thread."""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from _thread import get_ident
from collections import deque
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

from ..library import PLACE, STACK, Native, thread_number
from .probe import Probe, find_imported

if TYPE_CHECKING:
    from .steps import Steps


Spot = tuple[CodeType, int]
"""A line of some code."""
EVERY_NS = 5_000_000_000
"""Between two places of the same step or loader: 5 to 20 us on the training thread each."""
_COMPILERS = ("_dynamo/convert_frame.py", "_inductor/compile_fx.py")
_INNER, _OUTER = 4, 6
"""Of a deep stack, so many callers of the innermost and so many of the outermost are named: what is
between them is a library's way through the user's own modules."""


class Places:
    """Names of the user's frames, innermost first; a library's frames are left out.

    `place[ < caller's place[ < …]][ > place of the innermost frame of all][ | source line]`, a place
    being `file:line function`. What comes after ` > ` is there where it is another frame.
    """

    def __init__(self, native: Native) -> None:
        self.native = native
        self.due: dict[int, int] = {}
        """When the next place of a step (its class) or of a loader (its address) may be noted."""
        self._noted: deque[tuple[int, int, int, list[Spot]]] = deque(maxlen=64)
        self._noted_ns = 0
        self._library_dirs: tuple[str, ...] = ()
        # By addresses: to hash a code object reads all of it. The row keeps them from being used again.
        self._names: dict[tuple[int, ...], tuple[int, list[Spot]]] = {}

    def learn(self) -> None:
        self._library_dirs = library_dirs()

    def forget(self) -> None:
        """All: names hold code that the trainer may want to drop."""
        self._names.clear()
        self._noted.clear()
        self.due.clear()

    def note(self, mark_class: int, key: int, at_ns: int) -> None:
        """On the thread that made a mark of that class: remember where, to be sent by `send`."""
        if len(self.due) >= 256:
            self.due.clear()
        self.due[key] = at_ns + EVERY_NS
        spots = self._users(sys._getframe(1))
        if spots:
            self._noted.append((mark_class, at_ns, thread_number(get_ident()), spots))

    def send(self, now_ns: int) -> None:
        if now_ns < self._noted_ns:  # the clock was set back
            self.due.clear()
        self._noted_ns = now_ns
        for _ in range(len(self._noted)):
            mark_class, at_ns, thread, spots = self._noted.popleft()
            name_id = self._name([*spots, spots[0]])
            self.native.mark(PLACE, at_ns, at_ns, mark_class, name_id, thread)

    def name(self, leaf: FrameType) -> int:
        """The id of the name of a stack, given its innermost frame."""
        at = compiling(leaf) or leaf
        spot = (at.f_code, at.f_lineno or 0)
        return self._name([*(self._users(leaf) or [spot]), spot])

    def is_library(self, path: str) -> bool:
        return path.startswith(self._library_dirs)

    def source(self, path: str, line: int) -> str:
        return linecache.getline(path, line)

    def _users(self, leaf: FrameType) -> list[Spot]:
        """The user's own lines from a frame outwards."""
        frames = []
        frame: FrameType | None = leaf
        while frame is not None:
            if not self.is_library(frame.f_code.co_filename):
                frames.append(frame)
            frame = frame.f_back
        if len(frames) > 1 + _INNER + _OUTER:
            del frames[1 + _INNER : -_OUTER]
        return [(frame.f_code, frame.f_lineno or 0) for frame in frames]

    def _name(self, spots: list[Spot]) -> int:
        """Of the user's lines, and the innermost of all behind them."""
        key = tuple(number for code, line in spots for number in (id(code), line))
        known = self._names.get(key)
        if known is None:
            *users, leaf = spots
            name = " < ".join(place(*spot) for spot in users)
            if leaf != users[0]:
                name += " > " + place(*leaf)
            source = self.source(users[0][0].co_filename, users[0][1]).strip()
            if source:
                name += " | " + source[:120]
            if len(self._names) >= 1024:
                self._names.clear()
            self._names[key] = known = (self.native.name(name), spots)
        return known[0]


def library_dirs() -> tuple[str, ...]:
    """Beginnings of file names that are not the user's own code."""
    folders = {os.path.dirname(os.__file__), os.path.dirname(os.path.dirname(__file__))}
    folders.update(e for e in sys.path if "site-packages" in e or "dist-packages" in e)
    torch_file = find_imported("torch", "__file__")
    if torch_file is not None:
        folders.add(os.path.dirname(torch_file))
    temporary = os.environ.get("TMPDIR") or "/tmp"
    made = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or os.path.join(temporary, "torchinductor_")
    return ("<frozen", "<string>", made, *(folder.rstrip(os.sep) + os.sep for folder in folders))


def compiling(leaf: FrameType) -> FrameType | None:
    """The frame of torch's compiler that this one works for: what it calls, a C++ compiler's process too,
    is no business of the user's line."""
    frame: FrameType | None = leaf
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith(_COMPILERS) and "compile" in code.co_name:
            return frame
        frame = frame.f_back
    return None


def place(code: CodeType, line: int) -> str:
    """`zoo/train.py:88 train_step`: the last two parts of the path, for what fits a screen."""
    path = os.sep.join(code.co_filename.rsplit(os.sep, 2)[-2:])
    return f"{path}:{line} {getattr(code, 'co_qualname', code.co_name)}"


PERIOD_MS, _SLOWEST_MS = 25, 500
_SHARE = 0.001
"""Of the training thread's time, at most, while it runs: it has to wait while we have the interpreter."""
_HANDOVER_NS = 150_000
"""What the interpreter's way to us and back costs the thread that had it, beside the sample itself
(240 us a sample in all, 110 of them ours: one every 25 ms in a loop on a CPU)."""
_NEWEST = 0.1
_REST_NS = 5_000_000_000
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
        self._placed, self._rests_until_ns = False, 0
        self._cost_ns, self._running, self._ran_ns = 0.0, 1.0, 0
        self._last_ns = 0

    @property
    def places(self) -> Places:
        return self._steps.places

    @property
    def sampling(self) -> bool:
        return self._placed and time.monotonic_ns() >= self._rests_until_ns

    def rest(self, long_ns: int = _REST_NS) -> None:
        """A monitor samples from outside, and says so again in time."""
        self._rests_until_ns = time.monotonic_ns() + long_ns

    def place(self) -> None:
        self.places.learn()
        # Without the interpreter's lock frames of another thread may end while they are walked.
        locked = getattr(sys, "_is_gil_enabled", lambda: True)()
        if locked and not self._placed:
            self._placed, self._last_ns = True, 0
            self._cost_ns = float(_HANDOVER_NS)

    def clear(self) -> None:
        self._placed = False
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
