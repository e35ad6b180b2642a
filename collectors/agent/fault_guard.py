"""The fence: keeps our faults out of the trainer, counts them, and says when to stop.

What a signal handler of the trainer raised in the midst of our code is no fault of ours.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it in Python
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, Callable

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
