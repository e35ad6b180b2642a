"""Which `Source` a file is for. Looks at what is in it, never at its name.

An importer is a row here: how its files begin, and the class that reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from brrrtop.errors import BadInput
from brrrtop.sources.files import open_input
from brrrtop.sources.source import Source

_LONGEST_MAGIC = 16
_NSIGHT_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")


def _recording(path: Path, force: bool) -> Source:
    from brrrtop.sources.recording import RecordingSource

    return RecordingSource(path, force)


def _nsys(path: Path, force: bool) -> Source:
    from brrrtop.sources.importers.nsys.source import NsysSource

    return NsysSource(path, force)


def _kineto(path: Path, force: bool) -> Source:
    from brrrtop.sources.importers.kineto.source import KinetoSource

    return KinetoSource(path, force)


READERS: tuple[tuple[bytes, Callable[[Path, bool], Source]], ...] = (
    (b"BRRR", _recording),
    (b"SQLite format 3\x00", _nsys),
    (b"", _kineto),
)
"""How a file begins, and what reads it; the first that fits. Text, packed or not, is the last's."""


def open_source(path: str | Path, force: bool = False) -> Source:
    """A recording or a trace; with `force` however large.

    Raises:
        BadInput: Missing, a directory, empty, or nothing that can be read.
    """
    path = Path(path)
    file, _ = open_input(path)
    with file:
        start = file.read(_LONGEST_MAGIC)
    opened = next(reader for magic, reader in READERS if start.startswith(magic))
    if opened is _kineto and path.suffix in _NSIGHT_REPORTS:
        raise BadInput(
            f"{path.name} is a report that only Nsight Systems reads",
            f"nsys export --type sqlite --output {path.stem}.sqlite {path.name}",
        )
    return opened(path, force)
