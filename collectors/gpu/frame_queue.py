"""Frames that a sampler puts by and the monitor takes: neither waits for the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from brrrtop.protocol.frames import Frame

MOST = 4096
"""The oldest are dropped where nobody takes them."""


class FrameQueue:
    """Put by from one thread, taken from another."""

    def __init__(self) -> None:
        self._frames: deque[Frame] = deque(maxlen=MOST)

    def put(self, frames: Iterable[Frame]) -> None:
        self._frames.extend(frames)

    def drain(self) -> list[Frame]:
        """What was put by since the call before; never waits."""
        frames = []
        while self._frames:
            frames.append(self._frames.popleft())
        return frames
