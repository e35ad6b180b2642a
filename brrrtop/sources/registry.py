"""Which `Source` a file is for. Looks at what is in it, never at its name."""

from __future__ import annotations

from pathlib import Path

from brrrtop.sources.files import open_input
from brrrtop.sources.source import Source

RECORDING_MAGIC = b"BRRR"


def open_source(path: str | Path, force: bool = False) -> Source:
    """A recording or a trace; with `force` however large.

    Raises:
        BadInput: Missing, a directory, empty, or neither.
    """
    file, _ = open_input(Path(path))
    with file:
        start = file.read(len(RECORDING_MAGIC))
    if start == RECORDING_MAGIC:
        from brrrtop.sources.recording import RecordingSource

        return RecordingSource(path, force)
    from brrrtop.sources.importers.kineto.source import KinetoSource

    return KinetoSource(path, force)
