"""Opens a file that somebody named, with a sentence for whatever is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from brrrtop.errors import BadInput


def open_input(path: Path) -> tuple[BinaryIO, int]:
    """The file, and its size in bytes.

    Raises:
        BadInput: Missing, a directory, empty, not readable.
    """
    try:
        if path.is_dir():
            raise BadInput(f"{path} is a directory", "name one trace or recording in it")
        size_bytes = path.stat().st_size
        if not path.is_file():
            raise BadInput(
                f"{path} is not a regular file", "write it to a file first: it is read twice"
            )
        if size_bytes == 0:
            raise BadInput(f"{path} is empty", "was the export interrupted? Record it again")
        return path.open("rb"), size_bytes
    except FileNotFoundError:
        if str(path) == "-":
            raise BadInput(
                "a trace is not read from stdin", "write it to a file first: it is read twice"
            ) from None
        raise BadInput(f"there is no file {path}", "check the path") from None
    except (OSError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise BadInput(f"{path} cannot be read: {reason}", "check its permissions") from fault
