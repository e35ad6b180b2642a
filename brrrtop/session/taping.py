"""A source whose frames are also written to a recording as they pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from brrrtop.errors import BrrrtopError
from brrrtop.model import SourceInfo, Span
from brrrtop.session.recording import RecordingWriter
from brrrtop.session.source import Source
from collectors.wire import Frame


class TapedSource:
    """`source`, recorded. When the recording fails, watching goes on and `info.notes` says why."""

    def __init__(self, source: Source, writer: RecordingWriter) -> None:
        self._source = source
        self._writer = writer
        self._fault: str | None = None

    @property
    def info(self) -> SourceInfo:
        info = self._source.info
        return info if self._fault is None else replace(info, notes=(*info.notes, self._fault))

    @property
    def span(self) -> Span | None:
        return self._source.span

    @property
    def ended(self) -> bool:
        return self._source.ended

    def frames(self, until_ns: int | None = None) -> Iterator[Frame]:
        """The next frames, each written before it is handed on."""
        try:
            for frame in self._source.frames(until_ns):
                try:
                    self._writer.write(frame)
                except BrrrtopError as fault:
                    self._fault = fault.message
                yield frame
        finally:
            try:
                self._writer.flush_if_due()
            except BrrrtopError as fault:
                self._fault = fault.message

    def seek(self, t_ns: int) -> None:
        """Refused where the source refuses; what was recorded stays as it was."""
        self._source.seek(t_ns)

    def close(self) -> None:
        try:
            self._writer.close()
        except BrrrtopError as fault:
            self._fault = fault.message
        finally:
            self._source.close()
