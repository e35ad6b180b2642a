"""What `^C` does while there is nothing to put right yet, and where an import would swallow it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from brrrtop import deadline
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
        deadline.end_within()
        signal.raise_signal(signal.SIGINT)

    deadline.prepare()
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, end)
    return came


class Interrupts:
    """What a SIGINT does while an app is made and runs: it is noted, then told to the app.

    asyncio's own answer is lost in an app that is just starting, and Python's in an import.
    """

    def __init__(self) -> None:
        self._tell: Callable[[], None] | None = None
        self._first_s: float | None = None

    def go_to(self, tell: Callable[[], None]) -> None:
        """`tell` is called at each from now on.

        Raises:
            KeyboardInterrupt: One came before.
        """
        self._tell = tell
        if self._first_s is not None:
            raise KeyboardInterrupt

    def came(self, _number: int, _frame: FrameType | None) -> None:
        """Raises:
        KeyboardInterrupt: It is not the first, and the app had a while to end.
        """
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        if now_s - self._first_s > PATIENCE_S:
            raise KeyboardInterrupt
        if self._tell is not None:
            self._tell()


@contextmanager
def told_of_interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    before = signal.signal(signal.SIGINT, interrupts.came)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)
