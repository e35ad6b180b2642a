"""Tells what a signal handler of the trainer raised from a fault of ours."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` wraps it in Python
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any


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
        if type(value) is tuple and any(one is interrupted for one in value):
            return True
    return False
