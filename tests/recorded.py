"""Recordings and traces of this repository, read as a whole."""

from contextlib import closing
from pathlib import Path
from typing import Any

from brrrtop.model.snapshot import Snapshot
from brrrtop.model.tables import Span, Window
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from brrrtop.timeline.timeline import Timeline


def analyzed(path: Path | str, **options: Any) -> Snapshot:
    """What `brrrtop analyze` makes of it."""
    with closing(open_source(path)) as source:
        return analyze(source, **options)


def timeline_of(path: Path | str) -> Timeline:
    timeline = Timeline()
    with closing(open_source(path)) as source:
        for frame in source.frames():
            timeline.add(frame)
    return timeline


def windows_of(path: Path | str) -> list[Window]:
    """All of it, of each device, the busiest first."""
    timeline = timeline_of(path)
    span = Span(timeline.first_ns or 0, timeline.last_ns or 0)
    return [timeline.window(span, device) for device in timeline.active_devices(span)]
