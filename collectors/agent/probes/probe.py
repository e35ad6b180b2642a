"""What every probe has in common: the one way an attribute of somebody else's is replaced, and the fence,
which keeps our faults out of the trainer, counts them, and says when to stop.

What a signal handler of the trainer raised in the midst of our code is no fault of ours.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it in Python
import functools
import sys
from functools import partial
from time import time_ns
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Callable

from ..library import Native

_PROBE_LIMIT = 3
_LIMIT = 10


class FaultGuard:
    """Every call of ours on the trainer's threads goes through `guard`.

    Only `Exception` is held back: `KeyboardInterrupt` and its kin are the trainer's. So is what a
    signal handler of the trainer raises, which the interpreter may run in the midst of our code.
    """

    def __init__(self) -> None:
        self.faults: dict[str, int] = {}
        self.last: dict[str, str] = {}
        self.codes: set[CodeType] = set()
        """Our code that may run inside a compiled region: torch.compile has to leave it alone."""

    def caught(self, place: str, fault: Exception) -> None:
        """Count a fault of the probe called `place`."""
        self.faults[place] = self.faults.get(place, 0) + 1
        self.last[place] = f"{type(fault).__name__}: {fault}"[:200]

    def spent(self, place: str) -> bool:
        return self.faults.get(place, 0) >= _PROBE_LIMIT or self.tripped

    @property
    def tripped(self) -> bool:
        """True when there were so many faults in all that nothing of ours should stay."""
        return sum(self.faults.values()) >= _LIMIT

    def guard(self, place: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, except that its faults end here. Its answer is `None` then."""

        def guarded(*args: Any) -> Any:
            try:
                return call(*args)
            except Exception as fault:
                try:
                    theirs = raised_by_handler(fault)
                    if not theirs:
                        self.caught(place, fault)
                except (RecursionError, MemoryError):
                    theirs = False  # the trainer left no room to look at it
                if theirs:
                    raise
                return None

        if hasattr(call, "__code__"):
            self.codes.add(call.__code__)
        self.exempt(guarded)
        return guarded

    def exempt(self, function: Any) -> None:
        """Keep torch.compile out of a function of ours: it would change what is compiled."""
        function._torchdynamo_disable = True
        self.codes.add(function.__code__)


def raised_by_handler(fault: BaseException) -> bool:
    """A signal handler raised it that the interpreter ran in the midst of our code.

    The traceback goes through the handler's frame. That is known by its code, if it is still
    installed, or by the frame of ours that it interrupted, which every handler is given: some
    uninstall themselves before they raise. A handler that is not written in Python leaves no
    frame, and what it raises passes for a fault of ours (not so `KeyboardInterrupt`).
    """
    installed = None
    at = fault.__traceback__
    while at is not None and at.tb_next is not None:
        interrupted, at = at.tb_frame, at.tb_next
        if installed is None:
            installed = _installed_code()
        if at.tb_frame.f_code in installed or _was_given(at.tb_frame, interrupted):
            return True
    return False


def _installed_code() -> set[CodeType]:
    """The code of all signal handlers that are in place."""
    handlers = map(_signal.getsignal, range(1, _signal.NSIG))
    return {code for code in map(_code_of, handlers) if code is not None}


def _code_of(handler: Any) -> CodeType | None:
    """Reads no attribute that the trainer's own classes could compute."""
    while issubclass(type(handler), partial):
        handler = handler.func
    if type(handler) not in (FunctionType, MethodType):
        calls = [vars(cls)["__call__"] for cls in type(handler).__mro__ if "__call__" in vars(cls)]
        handler = calls[0] if calls else None
    if type(handler) is MethodType:
        handler = handler.__func__
    return handler.__code__ if type(handler) is FunctionType else None


def _was_given(frame: FrameType, interrupted: FrameType) -> bool:
    """Among its arguments, or a tuple of them, is the frame that it interrupted."""
    for value in frame.f_locals.values():
        if value is interrupted:
            return True
        if type(value) is tuple and any(argument is interrupted for argument in value):
            return True
    return False


class Probe:
    """One source of marks. Subclasses fill in `place`, `clear` and `wake`, callable at any time."""

    name = ""

    def __init__(self, native: Native, fence: FaultGuard) -> None:
        self.native, self.fence = native, fence
        self.live = 0
        """Which installation this is, 0 while removed: a wrapper left behind stays silent."""
        self._installed_count = 0
        self._patches: list[tuple[Any, str, Any, Any]] = []
        """Owner, attribute, ours and the original, in the order of their placing."""

    def install(self) -> None:
        """Put in place what is not yet: what a probe hooks may be imported later."""
        if not self.live:
            self.live = self._installed_count = self._installed_count + 1
        self.place()

    def remove(self) -> None:
        """Leave the trainer as it was.

        What somebody has wrapped since keeps our wrapper inside theirs; it does nothing then.
        """
        self.live = 0
        while self._patches:
            owner, attribute, ours, original = self._patches.pop()
            if vars(owner).get(attribute) is ours:
                setattr(owner, attribute, original)
        self.clear()

    def place(self) -> None:
        """Hook what the trainer has imported by now and is not hooked yet."""

    def clear(self) -> None:
        """Unhook what is not a patch; forget what was remembered of the trainer."""

    def wake(self, now_ns: int) -> None:
        """What there is to do off the training thread, at most twice a second."""

    def guard(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return self.fence.guard(self.name, call)

    def patch(
        self,
        owner: Any,
        attribute: str,
        before: Callable[[Any], None] | None = None,
        after: Callable[[Any, int], None] | None = None,
    ) -> None:
        """Have each call of `owner.attribute` preceded and followed by a call of ours.

        They get the arguments, a tuple; `after` also when the call began, however it ended.
        Once only, and only what `owner` defines itself. A function that has two owners gets the
        same wrapper in both: pickling it by name has to find the same object.
        """
        original = vars(owner).get(attribute)
        if original is None or any(p[0] is owner and p[1] == attribute for p in self._patches):
            return
        wrapped = [patch[2] for patch in self._patches if patch[3] is original]
        ours = wrapped[0] if wrapped else self._around(original, before, after)
        self._patches.append((owner, attribute, ours, original))
        setattr(owner, attribute, ours)

    def _around(self, original: Any, before: Any, after: Any) -> Any:
        ahead, behind = before and self.guard(before), after and self.guard(after)
        made = self.live

        @functools.wraps(original)
        def brrrtop_around(*args: Any, **kwargs: Any) -> Any:
            if ahead is not None and self.live == made:
                ahead(args)
            start_ns = time_ns()
            try:
                return original(*args, **kwargs)
            finally:
                if behind is not None and self.live == made:
                    behind(args, start_ns)

        self.fence.exempt(brrrtop_around)
        return brrrtop_around


def find_imported(module: str, path: str = "") -> Any:
    """A module the trainer has imported to the end, or what the dotted `path` leads to in it.

    `None` where there is no such thing. Looks into dictionaries only: `getattr` on a module may
    import (torch and wandb load lazily).
    """
    value: Any = sys.modules.get(module)
    if value is None or getattr(getattr(value, "__spec__", None), "_initializing", False):
        return None
    for attribute in filter(None, path.split(".")):
        value = vars(value).get(attribute)
        if value is None:
            return None
    return value
