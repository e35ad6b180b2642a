"""`brrrtop analyze FILE …`: one report of a recording or a trace, or of all ranks of a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from brrrtop.cli import fail_if as gate
from brrrtop.cli import output
from brrrtop.cli.files import files_of, read, read_all
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError
from brrrtop.exporters.tables import FORMATS, default_path, export


def run(options: Options) -> int:
    gates = gate.parse_all(options.fail_if)
    files = files_of(options)
    exports = asked_for(options, files)
    if len(files) == 1:
        snapshot = read(files[0], options, worst=bool(exports))
    else:
        snapshot = read_all(files, options)
    for format_id, target in exports:
        export(snapshot, format_id, target)
        output.say(f"brrrtop: wrote {target}")
    output.report(snapshot, options)
    gate.check(gates, snapshot)
    return 0


def asked_for(options: Options, files: Sequence[str]) -> list[tuple[str, Path]]:
    """Each format and where to.

    Raises:
        UsageError: There is no such format, or more than one PATH.
    """
    exports = []
    for format_id, *rest in options.export:
        if format_id not in FORMATS:
            raise UsageError(f"there is no export {format_id!r}", f"one of {', '.join(FORMATS)}")
        if len(rest) > 1:
            raise UsageError(f"--export {format_id} takes one PATH, not {len(rest)}")
        target = Path(rest[0]) if rest else default_path(format_id, files[0])
        exports.append((format_id, target))
    return exports
