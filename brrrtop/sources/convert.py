"""A trace as a recording that says where it is from."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from brrrtop.sources.recording import RecordingWriter
from brrrtop.sources.source import Source
from collectors.protocol.frames import Kind

LEVEL = 19
"""Of zstd: a conversion is written once, with nobody waiting on each frame."""


def convert(source: Source, path: str | Path) -> None:
    """Writes every frame of a finished source to a new recording.

    Args:
        source: Read from where it stands to its end.
        path: Must not exist.

    Raises:
        UsageError: `path` exists.
        BrrrtopError: The source or the file fails.
    """
    frames = list(source.frames())
    facts: dict[str, Any] = {
        "converted_from": f"{source.info.label} ({source.info.kind})",
        "date": _date(min((f.sent_ns for f in frames if f.sent_ns), default=0)),
    }
    names = [f.body.get("name") for f in frames if f.kind == Kind.DEVICE]
    if names and names[0]:
        facts["device"] = names[0]
    with RecordingWriter(path, facts, LEVEL) as writer:
        for frame in frames:
            writer.write(frame)


def _date(time_ns: int) -> str | None:
    """The day of a time since 1970; None for clocks that count from elsewhere."""
    if time_ns < 10**18:
        return None
    return (
        datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.timezone.utc).date().isoformat()
    )
