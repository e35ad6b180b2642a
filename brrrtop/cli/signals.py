"""What `^C` does while there is nothing to put right yet, and where an import would swallow it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from brrrtop.errors import INTERRUPTED


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


def end_if_untouched(code: int) -> None:
    """Ends the process with that code where `^C` would end it at once."""
    if signal.getsignal(signal.SIGINT) is _end:
        os._exit(code)


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
