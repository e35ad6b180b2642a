"""Keeps a copy of every frame: the last minutes in memory, and all of them in a file if asked.

What falls out of memory is folded into a head (names, hello, devices, …), so that the rest can be
read on its own. The file is written in a thread, so that a slow disk does not stop the screen.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from typing import Any

from msgspec.structs import replace

from brrrtop.errors import BrrrtopError
from brrrtop.sources.recording import RecordingWriter
from brrrtop.text import units
from collectors.protocol.bodies import EVENT_LINES
from collectors.protocol.frames import Frame, Kind

KEEP_NS = 600_000_000_000
KEEP_BYTES = 64 << 20
_FRAME_BYTES = 200
"""About what a frame costs besides its payload."""
WAITING_BYTES = 256 << 20
"""More than this unwritten, and the disk is too slow for what comes."""
FLUSH_S = 1.0
CLOSE_S = 10.0
"""What is waiting may still be written; a disk that hangs is not waited for any longer."""


class FrameRing:
    """The newest frames of a source, bounded in time and bytes."""

    def __init__(self, keep_ns: int = KEEP_NS, keep_bytes: int = KEEP_BYTES) -> None:
        self._keep_ns = keep_ns
        self._keep_bytes = keep_bytes
        self._buffered: deque[tuple[Frame, int]] = deque()
        self._bytes = 0
        self._names: dict[int, str] = {}
        self._devices: dict[int, dict[str, Any]] = {}
        self._ops: dict[int, Any] = {}
        self._latest: dict[int, Frame] = {}
        self._log: dict[int, list[Any]] = {}

    def add(self, frame: Frame) -> None:
        """Takes in one frame and lets go of what is too old or too much."""
        size = frame_bytes(frame)
        self._buffered.append((frame, size))
        self._bytes += size
        oldest_ns = frame.sent_ns - self._keep_ns
        while len(self._buffered) > 1 and (
            self._bytes > self._keep_bytes or self._buffered[0][0].sent_ns < oldest_ns
        ):
            gone, gone_bytes = self._buffered.popleft()
            self._bytes -= gone_bytes
            self._fold(gone)

    def frames(self) -> list[Frame]:
        """All that is held, in order, readable without what came before."""
        buffered = [frame for frame, _ in self._buffered]
        if not buffered:
            return []
        first_ns = buffered[0].sent_ns
        return [*(replace(frame, sent_ns=first_ns) for frame in self._head()), *buffered]

    def _fold(self, frame: Frame) -> None:
        if frame.kind == Kind.NAMES:
            self._names.update(frame.body)
        elif frame.kind == Kind.DEVICE:
            number = int(frame.body.get("device_id", 0))
            self._devices[number] = {**self._devices.get(number, {}), **frame.body}
        elif frame.kind == Kind.OPS:
            self._ops.update({int(row[0]): row for row in frame.body})
        elif frame.kind in (Kind.HELLO, Kind.STATUS):
            before = self._latest.get(frame.kind)
            body = {**(before.body if before else {}), **frame.body}
            if EVENT_LINES in frame.body:
                self._log.update({row[0]: row for row in frame.body[EVENT_LINES]})
                body[EVENT_LINES] = list(self._log.values())
            self._latest[frame.kind] = replace(frame, body=body)
        elif frame.kind == Kind.LOSS:
            self._latest[frame.kind] = frame
        elif frame.kind == Kind.OBSERVED:
            # Without any, a reader would take the whole source for traced.
            self._latest[frame.kind] = replace(frame, body=frame.body[:0])

    def _head(self) -> list[Frame]:
        head: list[Frame] = []
        if Kind.HELLO in self._latest:
            head.append(self._latest[Kind.HELLO])
        if self._names:
            head.append(Frame(Kind.NAMES, dict(self._names)))
        head += [Frame(Kind.DEVICE, facts) for facts in self._devices.values()]
        if self._ops:
            head.append(Frame(Kind.OPS, list(self._ops.values())))
        head += [frame for kind, frame in sorted(self._latest.items()) if kind != Kind.HELLO]
        return head


def frame_bytes(frame: Frame) -> int:
    """About what a frame takes in memory."""
    nbytes = getattr(frame.body, "nbytes", None)
    if nbytes is not None:
        return int(nbytes) + _FRAME_BYTES
    if frame.kind == Kind.NAMES:
        return _FRAME_BYTES + sum(len(name) + 60 for name in frame.body.values())
    return _FRAME_BYTES + 60 * len(frame.body)


class WriterThread:
    """Leaves writing to a thread. What went wrong there is told by `stopped`."""

    def __init__(self, sink: RecordingWriter, waiting_bytes: int = WAITING_BYTES) -> None:
        self._sink = sink
        self._most_bytes = waiting_bytes
        self._queue: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._began_s = time.monotonic()
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

    @property
    def size(self) -> str:
        """How large the file is, and how much that is an hour."""
        took_s = max(time.monotonic() - self._began_s, 1.0)
        size_bytes = self._sink.written_bytes
        return (
            f"{units.size(size_bytes)} recorded, {units.size(size_bytes * 3600 / took_s)} an hour"
        )

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


class FrameHistory:
    """A ring and a file. A file that cannot be written costs itself, never the session."""

    def __init__(self, sink: RecordingWriter | None = None) -> None:
        self.ring = FrameRing()
        self._scribe = WriterThread(sink) if sink is not None else None

    @property
    def stopped(self) -> str | None:
        """Why the file ends before the session does."""
        return self._scribe.stopped if self._scribe is not None else None

    @property
    def size(self) -> str | None:
        """Of the file, in words; None without one."""
        return self._scribe.size if self._scribe is not None else None

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
