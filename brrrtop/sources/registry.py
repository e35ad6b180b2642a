"""Which `Source` a file is for. Looks at what is in it, never at its name.

An importer is a row here: what tells its files, and the class that reads them.
"""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from brrrtop.errors import BadInput
from brrrtop.sources.source import Source, open_input

_START_BYTES = 64
_HEAD_BYTES = 1 << 16
"""Of text, after gunzip: a Chrome trace tells in its head who wrote it."""
_NSIGHT_REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")


_JAX_TRACE = re.compile(
    rb'"highres-ticks"|"process_name",\s*"args":\s*\{\s*"name":\s*"/(device|host):[A-Z]'
)
"""In the head of a Chrome trace of jax.profiler's or TensorFlow's, and in the first of its events."""


def _is_xspace(start: bytes) -> bool:
    """Whether a file begins with a plane, that is with its number or its name.

    The first byte is a line's end in a text, whose third is none of these two.
    """
    if start[:1] != b"\n":
        return False
    at = next((i for i in range(1, min(len(start), 11)) if start[i] < 128), None)
    return at is not None and start[at + 1 : at + 2] in (b"\x08", b"\x12")


_JAX = "importers.jax.source:JaxSource"
BINARY: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (lambda start: start.startswith(b"BRRR"), "recording:RecordingSource"),
    (lambda start: start.startswith(b"SQLite format 3\x00"), "importers.nsys:NsysSource"),
    (_is_xspace, _JAX),
)
"""By the first bytes of a file: the module here that is loaded for it, and its class."""
TEXTS: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (lambda text: _JAX_TRACE.search(text) is not None, _JAX),
    (lambda _: True, "importers.kineto.source:KinetoSource"),
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
        reader = next((one for fits, one in BINARY if fits(start)), None)
        if reader is None and path.suffix in _NSIGHT_REPORTS:
            raise BadInput(
                f"{path.name} is a report that only Nsight Systems reads",
                f"nsys export --type sqlite --output {path.stem}.sqlite {path.name}",
            )
        if reader is None:
            file.seek(0)
            head = _head(file, size_bytes)
            reader = next(text for fits, text in TEXTS if fits(head))
    module, _, name = reader.partition(":")
    opener: Any = getattr(import_module(f"brrrtop.sources.{module}"), name)
    source: Source = opener(path, force)
    return source


def _head(file: BinaryIO, size_bytes: int) -> bytes:
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
