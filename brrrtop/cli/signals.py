"""Holds `^C` back for a while that would swallow it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uninterrupted() -> Iterator[None]:
    """`^C` waits until everything is imported.

    numpy, interrupted while it loads, swallows it or calls itself broken, and the locks of imports
    run callbacks whose exceptions Python only prints.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
