"""What `^C` does while there is nothing to put right yet, and where an import would swallow it."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from brrrtop import errors
from brrrtop.errors import INTERRUPTED

PATIENCE_S = 2.0
"""What an app may take to end after `^C`."""


def end_at_once() -> None:
    """Until `begin`, `^C` ends the process with 130, in silence.

    Nothing is touched so far. A KeyboardInterrupt can come up within a callback of the imports, whose
    exceptions Python only prints: the command would go on.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def begin() -> None:
    """From now on `^C` raises KeyboardInterrupt: something is touched that has to be let go of."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """`^C` waits until everything is imported.

    numpy, interrupted while it loads, swallows it or calls itself broken, and the locks of imports
    run callbacks whose exceptions Python only prints.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_as_by_interrupt() -> list[int]:
    """Makes a request to end, or a terminal that goes away, take the way out that `^C` takes.

    Once: the same request again, or a way out that takes too long, ends the process at once.

    Returns:
        Grows by the number of the signal when one comes.
    """
    came: list[int] = []

    def end(number: int, _frame: FrameType | None) -> None:
        if signal.getsignal(signal.SIGINT) is _end:
            os._exit(128 + number)
        came.append(number)
        signal.signal(number, signal.SIG_DFL)
        errors.arm_exit_alarm()
        signal.raise_signal(signal.SIGINT)

    errors.prepare()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
    return came


@contextmanager
def note_interrupts() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Notes each SIGINT while an app is made and runs; gives the function by which the app is told.

    asyncio's own answer is lost in an app that is just starting, and Python's in an import.

    Raises:
        KeyboardInterrupt: One came before there was an app to tell, or when that had a while to end.
    """
    came_s: list[float] = []
    hearers: list[Callable[[], None]] = []

    def came(_number: int, _frame: FrameType | None) -> None:
        came_s.append(time.monotonic())
        if came_s[-1] - came_s[0] > PATIENCE_S:
            raise KeyboardInterrupt
        for tell in hearers:
            tell()

    def tell_from_now_on(tell: Callable[[], None]) -> None:
        hearers.append(tell)
        if came_s:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, came)
    try:
        yield tell_from_now_on
    finally:
        signal.signal(signal.SIGINT, before)
