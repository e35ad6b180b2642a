"""Keeps a copy of every frame: the last minutes in memory, and all of them in a file if asked."""

from __future__ import annotations

from brrrtop.errors import BrrrtopError
from brrrtop.protocol.frames import Frame, Kind
from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.ring import FrameRing
from brrrtop.sources.writer_thread import Sink, WriterThread


class Tee:
    """A ring and a file. A file that cannot be written costs itself, never the session."""

    def __init__(self, sink: Sink | None = None) -> None:
        self.ring = FrameRing()
        self._scribe = WriterThread(sink) if sink is not None else None

    @property
    def stopped(self) -> str | None:
        """Why the file ends before the session does."""
        return self._scribe.stopped if self._scribe is not None else None

    def add(self, frame: Frame) -> None:
        """Keeps a frame."""
        self.ring.add(frame)
        if self._scribe is not None:
            self._scribe.write(frame)

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
        if self._scribe is not None:
            if last is not None:
                self._scribe.write(last)
            self._scribe.close()
