"""Which `Source` a file is for. Looks at what is in it, never at its name."""

from __future__ import annotations

from pathlib import Path

from brrrtop.session import kineto_text
from brrrtop.session.source import Source

RECORDING_MAGIC = b"BRRR"


def open_source(path: str | Path, force: bool = False) -> Source:
    """A recording or a trace; with `force` however large.

    Raises:
        BadInput: Missing, a directory, empty, or neither.
    """
    file, _ = kineto_text.open_trace(Path(path))
    with file:
        start = file.read(len(RECORDING_MAGIC))
    if start == RECORDING_MAGIC:
        from brrrtop.session.recording import RecordingSource

        return RecordingSource(path, force)
    from brrrtop.session.kineto import KinetoSource

    return KinetoSource(path, force)
