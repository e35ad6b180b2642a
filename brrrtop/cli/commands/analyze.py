"""`brrrtop analyze FILE …`: one report of a recording or a trace, or of all ranks of a job."""

from __future__ import annotations

from brrrtop.cli import fail_if as gate
from brrrtop.cli import output, rank_files
from brrrtop.cli.options import Options
from brrrtop.model.snapshot import Snapshot
from brrrtop.session.whole import analyze
from brrrtop.sources.registry import open_source


def read(path: str, options: Options, *, trimmed: bool = False) -> Snapshot:
    """The whole file (or `--steps` of it) as one snapshot of the chosen or busiest GPU.

    `trimmed`: without what lies outside its whole steps, to be compared with another.

    Raises:
        BadInput: The file cannot be used; says why.
    """
    source = open_source(path, options.force)
    try:
        if options.record:
            from brrrtop.cli.commands import replay  # and with it the screen

            replay.convert(source, options.record)
        return analyze(
            source, options.steps, options.gpu, trimmed=trimmed, silenced=options.silenced
        )
    finally:
        source.close()


def run(options: Options) -> int:
    gates = gate.parse_all(options.fail_if)
    files = rank_files.files_of(options)
    if len(files) == 1:
        snapshot = read(files[0], options)
    else:
        snapshot = rank_files.read_all(files, options)
    output.report(snapshot, options)
    gate.check(gates, snapshot)
    return 0
