"""Keeps the last minutes of frames in memory, so that what was just seen can still be saved.

What falls out is folded into a head (names, hello, devices, …), so that the rest can be read on
its own.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec.structs import replace

from brrrtop.protocol.bodies import EVENT_LINES
from brrrtop.protocol.frames import Frame, Kind

KEEP_NS = 600_000_000_000
KEEP_BYTES = 64 << 20
_FRAME_BYTES = 200
"""About what a frame costs besides its payload."""


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
