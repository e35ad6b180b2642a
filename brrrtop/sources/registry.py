"""Which `Source` a file is for. Looks at what is in it, never at its name.

An importer is a row here: what tells its files, and the class that reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from brrrtop.errors import BadInput
from brrrtop.sources.files import open_input
from brrrtop.sources.importers.jax import signs
from brrrtop.sources.source import Source

_START_BYTES = 64
_HEAD_BYTES = 1 << 16
"""Of text, after gunzip: a Chrome trace tells in its head who wrote it."""
_NSIGHT_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")


def _recording(path: Path, force: bool) -> Source:
    from brrrtop.sources.recording import RecordingSource

    return RecordingSource(path, force)


def _nsys(path: Path, force: bool) -> Source:
    from brrrtop.sources.importers.nsys.source import NsysSource

    return NsysSource(path, force)


def _jax(path: Path, force: bool) -> Source:
    from brrrtop.sources.importers.jax.source import JaxSource

    return JaxSource(path, force)


def _kineto(path: Path, force: bool) -> Source:
    from brrrtop.sources.importers.kineto.source import KinetoSource

    return KinetoSource(path, force)


Opener = Callable[[Path, bool], Source]
BINARY: tuple[tuple[Callable[[bytes], bool], Opener], ...] = (
    (lambda start: start.startswith(b"BRRR"), _recording),
    (lambda start: start.startswith(b"SQLite format 3\x00"), _nsys),
    (signs.is_xspace, _jax),
)
"""By the first bytes of a file."""
TEXTS: tuple[tuple[Callable[[bytes], bool], Opener], ...] = (
    (signs.is_chrome_trace, _jax),
    (lambda _: True, _kineto),
)
"""By the beginning of its text, packed or not; what nobody knows is the last one's to refuse."""


def open_source(path: str | Path, force: bool = False) -> Source:
    """A recording or a trace; with `force` however large.

    Raises:
        BadInput: Missing, a directory, empty, or nothing that can be read.
    """
    path = Path(path)
    file, size_bytes = open_input(path)
    with file:
        start = file.read(_START_BYTES)
        opener = next((opener for fits, opener in BINARY if fits(start)), None)
        if opener is None and path.suffix in _NSIGHT_REPORTS:
            raise BadInput(
                f"{path.name} is a report that only Nsight Systems reads",
                f"nsys export --type sqlite --output {path.stem}.sqlite {path.name}",
            )
        if opener is None:
            file.seek(0)
            head = _head(file, size_bytes)
            opener = next(opener for fits, opener in TEXTS if fits(head))
    return opener(path, force)


def _head(file: BinaryIO, size_bytes: int) -> bytes:
    """The beginning of a text, packed or not."""
    from brrrtop.sources.importers.trace.reader import Inflater

    head = b""
    try:
        for block in Inflater(file, size_bytes).blocks():
            head += block
            if len(head) >= _HEAD_BYTES:
                break
    except OSError:  # whoever reads it next says why
        return b""
    return head[:_HEAD_BYTES]
