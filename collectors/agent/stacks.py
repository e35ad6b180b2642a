"""Samples where the training thread stands, while it is asked to."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any, Dict, Optional, Tuple

from .fence import Fence
from .native import STACK, Native
from .probe import Probe, imported
from .steps import Steps

PERIOD_MS = 25
_DEPTH = 100
_SOURCE_LIMIT = 120


class Stacks(Probe):
    """One STACK mark a sample; its value is the time since the sample before, 0 for the first.

    The name is `file:line function` of the innermost frame of the user's own code, then, where they
    differ or can be read, ` > file:line function` of the innermost frame of all and ` | source line`.
    A CUDA wait inside `.item()` has no Python frame of its own: the source line shows it.
    """

    name = "stacks"

    def __init__(self, native: Native, fence: Fence, steps: Steps) -> None:
        super().__init__(native, fence)
        self._steps = steps
        self.sampling = False
        self._last_ns = 0
        self._library_dirs: Tuple[str, ...] = ()
        self._names: Dict[Tuple[CodeType, int, CodeType, int], int] = {}

    def turn(self, on: bool) -> None:
        """Begin or end sampling."""
        self.sampling, self._last_ns = on, 0
        self._names.clear()  # it holds code objects, which the trainer may want to drop
        if on:
            self._library_dirs = library_dirs()

    def remove(self) -> None:
        super().remove()
        self.turn(False)

    def sample(self, now_ns: int) -> None:
        """Mark where the training thread is at this moment."""
        main = threading.main_thread()
        ident = self._steps.thread_ident or main.ident or 0
        thread = self._steps.thread_id or main.native_id or 0
        frame = sys._current_frames().get(ident)
        if frame is None:
            return
        name_id = self._name(frame)
        del frame  # held, it would keep the trainer's tensors alive
        value = now_ns - self._last_ns if self._last_ns else 0
        self._last_ns = now_ns
        self.native.mark(STACK, now_ns, now_ns, value, name_id, thread)

    def _name(self, leaf: FrameType) -> int:
        user = self._innermost_of_user(leaf)
        key = (user.f_code, user.f_lineno or 0, leaf.f_code, leaf.f_lineno or 0)
        found = self._names.get(key)
        if found is None:
            text = place(user.f_code, key[1])
            if leaf is not user:
                text += " > " + place(leaf.f_code, key[3])
            source = linecache.getline(user.f_code.co_filename, key[1], user.f_globals).strip()
            if source:
                text += " | " + source[:_SOURCE_LIMIT]
            if len(self._names) >= 1024:
                self._names.clear()
            found = self._names[key] = self.native.name(text)
        return found

    def _innermost_of_user(self, leaf: FrameType) -> FrameType:
        frame: Optional[FrameType] = leaf
        for _ in range(_DEPTH):
            if frame is None:
                break
            if not frame.f_code.co_filename.startswith(self._library_dirs):
                return frame
            frame = frame.f_back
        return leaf


def library_dirs() -> Tuple[str, ...]:
    """Beginnings of file names that are not the user's own code."""
    found = {os.path.dirname(os.__file__), os.path.dirname(__file__)}
    for entry in sys.path:
        if "site-packages" in entry or "dist-packages" in entry:
            found.add(entry)
    torch_file: Any = imported("torch", "__file__")
    if torch_file:
        found.add(os.path.dirname(torch_file))
    return ("<frozen", "<string>", *(d.rstrip(os.sep) + os.sep for d in sorted(found)))


def place(code: CodeType, line: int) -> str:
    """`train.py:88 train_step`: the last two parts of a long path, for what fits a screen."""
    path = code.co_filename
    if not path.startswith("<"):
        path = os.sep.join(path.rsplit(os.sep, 2)[-2:]) if path.count(os.sep) > 2 else path
    return f"{path}:{line} {getattr(code, 'co_qualname', code.co_name)}"
