"""What a report can be written as. A new format is one module and one line here."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from brrrtop.errors import BrrrtopError, UsageError

if TYPE_CHECKING:
    from brrrtop.model.snapshot import Snapshot


class Format(Struct, frozen=True):
    module: str
    """Below `brrrtop.exporters`. Has `write(snapshot, path, format_id)`, which raises BrrrtopError where it
    cannot; one module may write several formats."""
    ending: str
    """Of the file's name; a folder's has no dot."""
    says: str
    """What is written, for `--help`."""


FORMATS = {
    "csv": Format("tables", "-tables", "a folder with one CSV file a table"),
    "parquet": Format("tables", "-tables", "a folder with one Parquet file a table (pyarrow)"),
    "html": Format("html", ".html", "one page with the pictures, to send or to attach"),
    "perfetto": Format("perfetto", ".perfetto.json.gz", "the worst step for ui.perfetto.dev"),
}


def default_path(format_id: str, source: str) -> Path:
    """In the working folder, after the file that is reported on."""
    name = Path(source).name
    for ending in (".gz", ".json", ".pt.trace", ".trace", ".brrr"):
        name = name.removesuffix(ending)
    return Path((name or "report") + FORMATS[format_id].ending)


def export(snapshot: Snapshot, format_id: str, path: Path) -> None:
    """Writes a report; never over anything.

    Raises:
        UsageError: There is something at `path`, or no such format.
        BrrrtopError: The format needs what is not installed, or the file cannot be written.
    """
    if format_id not in FORMATS:
        raise UsageError(f"there is no export {format_id!r}", f"one of {', '.join(FORMATS)}")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists already and brrrtop never overwrites", "name another PATH")
    module = import_module(f"brrrtop.exporters.{FORMATS[format_id].module}")
    write: Callable[[Snapshot, Path, str], None] = module.write
    try:
        write(snapshot, path, format_id)
    except OSError as fault:
        raise BrrrtopError(f"{path} cannot be written: {fault.strerror}") from fault
