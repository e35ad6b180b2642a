"""Which `Source` a file is for. Looks at what is in it, never at its name. A new format is one package in
`importers/` and one line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from brrrtop.sources.files import open_input
from brrrtop.sources.source import Source


@dataclass(frozen=True, slots=True)
class Reader:
    begins: bytes
    """How such a file begins."""
    endings: tuple[str, ...]
    """Of the names by which such files are found in a folder."""
    module: str
    """Below `brrrtop.sources`; imported only for a file of its kind."""
    name: str
    """Of the class, called with the path and whether the file is read however large it is. It raises
    BadInput where the file is none of its kind after all."""


READERS = (
    Reader(b"BRRR", (".brrr",), "recording", "RecordingSource"),
    Reader(b"", (".json", ".json.gz"), "importers.kineto.source", "KinetoSource"),
)
"""The first whose beginning a file has takes it; the last takes what is nobody's, and refuses it."""
ENDINGS = tuple(ending for one in READERS for ending in one.endings)


def open_source(path: str | Path, force: bool = False) -> Source:
    """A recording or a trace; with `force` however large.

    Raises:
        BadInput: Missing, a directory, empty, or of no known kind.
    """
    file, _ = open_input(Path(path))
    with file:
        start = file.read(max(len(one.begins) for one in READERS))
    reader = next(one for one in READERS if start.startswith(one.begins))
    make = getattr(import_module(f"brrrtop.sources.{reader.module}"), reader.name)
    source: Source = make(path, force)
    return source
