"""Keeps a copy of every frame: the last minutes in memory, and all of them in a file if asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from brrrtop.errors import BrrrtopError
from brrrtop.session.recording import RecordingWriter
from brrrtop.session.ring import FrameRing
from collectors.wire import Frame, Kind


class Sink(Protocol):
    """Where a copy of every frame goes. Raises `BrrrtopError` when it cannot be written."""

    def write(self, frame: Frame) -> None: ...

    def flush_if_due(self) -> None: ...

    def close(self) -> None: ...


class Tee:
    """A ring and a file. A file that cannot be written costs itself, never the session."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.ring = FrameRing()
        self._sink = sink
        self.stopped: str | None = None
        """Why the file ends before the session does."""

    def add(self, frame: Frame) -> None:
        """Keeps a frame."""
        self.ring.add(frame)
        if self._sink is not None:
            sink = self._sink
            self._attempt(lambda: sink.write(frame))

    def flush(self) -> None:
        """To be called about once a second."""
        if self._sink is not None:
            self._attempt(self._sink.flush_if_due)

    def save(self, path: str) -> int:
        """Writes what is in memory to a new file; returns the number of frames.

        Raises:
            BrrrtopError: The file exists, or cannot be written.
        """
        frames = self.ring.frames()
        if not frames:
            raise BrrrtopError("there is nothing to save yet", "wait for the first frames")
        with RecordingWriter(path) as writer:
            for frame in frames:
                writer.write(frame)
            if frames[-1].kind != Kind.END:
                writer.write(Frame(Kind.END, {"reason": "saved here"}, frames[-1].sent_ns + 1))
        return len(frames)

    def close(self, last: Frame | None = None) -> None:
        """Ends the file, with `last` if given."""
        if self._sink is not None:
            sink = self._sink
            if last is not None:
                self._attempt(lambda: sink.write(last))
            self._attempt(sink.close)
        self._sink = None

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except BrrrtopError as fault:
            self._sink, self.stopped = None, fault.message
