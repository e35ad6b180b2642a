"""A `Source` over a list of frames."""

from collections.abc import Iterable, Iterator

from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from brrrtop.sources.source import with_hello
from collectors.protocol.frames import Frame, Kind


class MemorySource:
    """Frames of a list, in order of `sent_ns`."""

    def __init__(self, frames: Iterable[Frame], info: SourceInfo | None = None) -> None:
        self._frames = sorted(frames, key=lambda frame: frame.sent_ns)
        self._next = 0
        self._info = with_hello(
            info or SourceInfo(kind="memory", label="memory"),
            next((f.body for f in self._frames if f.kind == Kind.HELLO), {}),
        )

    @property
    def info(self) -> SourceInfo:
        return self._info

    @property
    def span(self) -> Span | None:
        if not self._frames:
            return None
        return Span(self._frames[0].sent_ns, self._frames[-1].sent_ns)

    @property
    def ended(self) -> bool:
        return self._next >= len(self._frames)

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        """The next frames with `sent_ns <= until_ns`."""
        while self._next < len(self._frames):
            frame = self._frames[self._next]
            if until_ns is not None and frame.sent_ns > until_ns:
                return
            self._next += 1
            yield frame

    def seek(self, t_ns: int) -> None:
        self._next = 0

    def close(self) -> None:
        self._frames = []
