"""Tells the agent that the monitor lives, whatever the rest of the monitor is busy with."""

from __future__ import annotations

import threading
from collections.abc import Callable

EVERY_S = 0.7
"""The agent retracts after 2 s of silence."""


class Heartbeat:
    """A thread that calls `beat` until stopped or `beat` says that nobody listens."""

    def __init__(self, beat: Callable[[], bool]) -> None:
        self._beat = beat
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="brrrtop-pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while self._beat() and not self._stop.wait(EVERY_S):
            pass

    def close(self, wait_s: float = 1.0) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)
