"""Where the user's own code stands, as names: of samples, and of marks of other classes."""

from __future__ import annotations

import linecache
import os
import sys
from _thread import get_ident
from collections import deque
from types import CodeType, FrameType

from ..library import PLACE, Native, thread_number
from .probe import find_imported

Spot = tuple[CodeType, int]
"""A line of some code."""
EVERY_NS = 5_000_000_000
"""Between two places of the same step or loader: 5 to 20 us on the training thread each."""
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
        """Where libraries are, as far as they have been imported."""
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
        """Mark what was noted; on the control thread, which may read files."""
        if now_ns < self._noted_ns:  # the clock was set back
            self.due.clear()
        self._noted_ns = now_ns
        for _ in range(len(self._noted)):
            mark_class, at_ns, thread, spots = self._noted.popleft()
            name_id = self._name([*spots, spots[0]])
            self.native.mark(PLACE, at_ns, at_ns, mark_class, name_id, thread)

    def name(self, leaf: FrameType) -> int:
        """The id of the name of a stack, given its innermost frame."""
        spot = (leaf.f_code, leaf.f_lineno or 0)
        return self._name([*(self._users(leaf) or [spot]), spot])

    def _users(self, leaf: FrameType) -> list[Spot]:
        """The user's own lines from a frame outwards."""
        frames, dirs = [], self._library_dirs
        frame: FrameType | None = leaf
        while frame is not None:
            if not frame.f_code.co_filename.startswith(dirs):
                frames.append(frame)
            frame = frame.f_back
        if len(frames) > 1 + _INNER + _OUTER:
            del frames[1 + _INNER : -_OUTER]
        return [(one.f_code, one.f_lineno or 0) for one in frames]

    def _name(self, spots: list[Spot]) -> int:
        """Of the user's lines, and the innermost of all behind them."""
        key = tuple(number for code, line in spots for number in (id(code), line))
        known = self._names.get(key)
        if known is None:
            *users, leaf = spots
            name = " < ".join(place(*spot) for spot in users)
            if leaf != users[0]:
                name += " > " + place(*leaf)
            source = linecache.getline(users[0][0].co_filename, users[0][1]).strip()
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
    return ("<frozen", "<string>", *(found_dir.rstrip(os.sep) + os.sep for found_dir in folders))


def place(code: CodeType, line: int) -> str:
    """`zoo/train.py:88 train_step`: the last two parts of the path, for what fits a screen."""
    path = os.sep.join(code.co_filename.rsplit(os.sep, 2)[-2:])
    return f"{path}:{line} {getattr(code, 'co_qualname', code.co_name)}"
