"""Writes frames to a file in a thread of its own, so that a slow disk does not stop the screen."""

from __future__ import annotations

import queue
import threading
from typing import Protocol

from brrrtop.errors import BrrrtopError
from brrrtop.protocol.frames import Frame
from brrrtop.sources.ring import frame_bytes

WAITING_BYTES = 256 << 20
"""More than this unwritten, and the disk is too slow for what comes."""
FLUSH_S = 1.0
CLOSE_S = 10.0
"""What is waiting may still be written; a disk that hangs is not waited for any longer."""


class Sink(Protocol):
    """Where a copy of every frame goes. Raises `BrrrtopError` when it cannot be written."""

    def write(self, frame: Frame) -> None: ...

    def flush_if_due(self) -> None: ...

    def close(self) -> None: ...


class WriterThread:
    """A sink in front of another one. What went wrong there is told by `stopped`."""

    def __init__(self, sink: Sink, waiting_bytes: int = WAITING_BYTES) -> None:
        self._sink = sink
        self._most_bytes = waiting_bytes
        self._queue: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self.stopped: str | None = None
        """Why nothing is written any more; None while all is well."""
        self._thread = threading.Thread(target=self._run, name="brrrtop-scribe", daemon=True)
        self._thread.start()

    def write(self, frame: Frame) -> None:
        """Leaves a frame to be written; does nothing once stopped."""
        if self.stopped is not None:
            return
        with self._lock:
            self._waiting_bytes += frame_bytes(frame)
            too_much = self._waiting_bytes > self._most_bytes
        if too_much:
            self.stopped = "recording stopped: the disk is too slow for what comes"
        else:
            self._queue.put(frame)

    def close(self, wait_s: float = CLOSE_S) -> None:
        """Writes what is left, and ends the file."""
        self._queue.put(None)
        self._thread.join(wait_s)
        if self._thread.is_alive() and self.stopped is None:
            self.stopped = "the end of the recording is missing: the disk did not answer"

    def _run(self) -> None:
        try:
            while True:
                try:
                    frame = self._queue.get(timeout=FLUSH_S)
                except queue.Empty:
                    self._sink.flush_if_due()
                    continue
                if frame is None:
                    break
                self._sink.write(frame)
                with self._lock:
                    self._waiting_bytes -= frame_bytes(frame)
        except Exception as fault:  # noqa: BLE001 - whatever it is costs the recording alone
            self.stopped = _sentence(fault)
        finally:
            self._end()

    def _end(self) -> None:
        try:
            self._sink.close()
        except Exception as fault:  # noqa: BLE001 - as above
            self.stopped = self.stopped or _sentence(fault)


def _sentence(fault: Exception) -> str:
    if isinstance(fault, BrrrtopError):
        return fault.message
    return f"recording stopped: {str(fault) or type(fault).__name__}"
