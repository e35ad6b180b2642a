"""A finished source that begins where its GPU does, so that a replay opens on something to see."""

from __future__ import annotations

from collections.abc import Iterator

from brrrtop.model.snapshot import SourceInfo
from brrrtop.model.tables import Span
from brrrtop.protocol.frames import Frame, Kind
from brrrtop.sources.source import Source


class FromFirstActivity:
    """`source` with the span of its device activity; what came before is still read first."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._span = _active_span(source)

    @property
    def info(self) -> SourceInfo:
        return self._source.info

    @property
    def span(self) -> Span | None:
        return self._span

    @property
    def ended(self) -> bool:
        return self._source.ended

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        return self._source.frames(until_ns)

    def seek(self, t_ns: int) -> None:
        self._source.seek(t_ns)

    def close(self) -> None:
        self._source.close()


def _active_span(source: Source) -> Span | None:
    """From the first device activity to the source's end; reads the source and rewinds it."""
    span = source.span
    if span is None:
        return None
    first_ns = None
    for frame in source.frames():
        if frame.kind in (Kind.KERNELS, Kind.COPIES) and len(frame.body):
            first_ns = int(frame.body["start_ns"].min())
            break
    source.seek(span.t0_ns)
    return span if first_ns is None else Span(max(span.t0_ns, first_ns), span.t1_ns)
