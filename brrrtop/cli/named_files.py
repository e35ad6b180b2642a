"""Which files a person meant: those that were named, and those in folders that were."""

from __future__ import annotations

from pathlib import Path

from brrrtop.cli.options import Options
from brrrtop.errors import BadInput, UsageError

ENDINGS = (".brrr", ".json", ".json.gz", ".sqlite", ".pb")


def files_of(options: Options) -> tuple[str, ...]:
    """The files that were named, and those in folders that were.

    Raises:
        BadInput: A folder has none.
        UsageError: Several are named, and one recording is to be made of them.
    """
    files: list[str] = []
    for name in options.files:
        folder = Path(name)
        files += _in_folder(folder) if folder.is_dir() else [name]
    if len(files) > 1 and options.record:
        raise UsageError(
            "--record writes one recording, and several files were named", "convert one at a time"
        )
    return tuple(dict.fromkeys(files))


def _in_folder(folder: Path) -> list[str]:
    try:
        listed = sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS))
    except OSError as fault:
        raise BadInput(
            f"{folder} cannot be read: {fault.strerror}", "check its permissions"
        ) from fault
    if not listed:
        raise BadInput(
            f"{folder} has no recording or trace in it", f"their names end in {', '.join(ENDINGS)}"
        )
    return [str(path) for path in listed]
