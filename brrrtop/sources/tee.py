"""Writes every frame to the file of `--record`, in a thread: a slow disk does not stop the screen."""

import queue
import threading
import time

from brrrtop.errors import BrrrtopError
from brrrtop.sources.recording import RecordingWriter
from brrrtop.text import units
from collectors.protocol.frames import Frame, Kind

_FRAME_BYTES = 200
"""About what a frame costs besides its payload."""
WAITING_BYTES = 256 << 20
"""More than this unwritten, and the disk is too slow for what comes."""
FLUSH_S = 1.0
CLOSE_S = 10.0
"""What is waiting may still be written; a disk that hangs is not waited for any longer."""


def frame_bytes(frame: Frame) -> int:
    nbytes = getattr(frame.body, "nbytes", None)
    if nbytes is not None:
        return int(nbytes) + _FRAME_BYTES
    if frame.kind == Kind.NAMES:
        return _FRAME_BYTES + sum(len(name) + 60 for name in frame.body.values())
    return _FRAME_BYTES + 60 * len(frame.body)


class WriterThread:
    """Leaves writing to a thread. What went wrong there is told by `stopped`, and costs the file alone.

    Args:
        sink: None: nothing is recorded.
    """

    def __init__(self, sink: RecordingWriter | None, waiting_bytes: int = WAITING_BYTES) -> None:
        self._sink = sink
        self._most_bytes = waiting_bytes
        self._queue: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._began_s = time.monotonic()
        self.stopped: str | None = None
        """Why nothing is written any more; None while all is well."""
        if sink is not None:
            self._thread = threading.Thread(
                target=self._run, args=(sink,), name="brrrtop-scribe", daemon=True
            )
            self._thread.start()

    def add(self, frame: Frame) -> None:
        if self._sink is None or self.stopped is not None:
            return
        with self._lock:
            self._waiting_bytes += frame_bytes(frame)
            too_much = self._waiting_bytes > self._most_bytes
        if too_much:
            self.stopped = "recording stopped: the disk is too slow for what comes"
        else:
            self._queue.put(frame)

    @property
    def size(self) -> str | None:
        if self._sink is None:
            return None
        took_s = max(time.monotonic() - self._began_s, 1.0)
        size_bytes = self._sink.written_bytes
        return (
            f"{units.size(size_bytes)} recorded, {units.size(size_bytes * 3600 / took_s)} an hour"
        )

    def close(self, last: Frame | None = None, wait_s: float = CLOSE_S) -> None:
        """Writes what is left, with `last` if given, and ends the file."""
        if self._sink is None:
            return
        if last is not None:
            self.add(last)
        self._queue.put(None)
        self._thread.join(wait_s)
        if self._thread.is_alive() and self.stopped is None:
            self.stopped = "the end of the recording is missing: the disk did not answer"

    def _run(self, sink: RecordingWriter) -> None:
        try:
            while True:
                try:
                    frame = self._queue.get(timeout=FLUSH_S)
                except queue.Empty:
                    sink.flush_if_due()
                    continue
                if frame is None:
                    break
                sink.write(frame)
                with self._lock:
                    self._waiting_bytes -= frame_bytes(frame)
        except Exception as fault:  # noqa: BLE001 - whatever it is costs the recording alone
            self.stopped = _sentence(fault)
        try:
            sink.close()
        except Exception as fault:  # noqa: BLE001 - as above
            self.stopped = self.stopped or _sentence(fault)


def _sentence(fault: Exception) -> str:
    if isinstance(fault, BrrrtopError):
        return fault.message
    return f"recording stopped: {str(fault) or type(fault).__name__}"
