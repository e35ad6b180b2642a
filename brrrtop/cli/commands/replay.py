"""`brrrtop replay FILE …`: the screen over a recording or a trace, or over all ranks of a job."""

from __future__ import annotations

from brrrtop.cli import named_files, output, show
from brrrtop.cli.options import Options
from brrrtop.sources.registry import open_source
from brrrtop.sources.source import Source


def run(options: Options) -> int:
    files = named_files.files_of(options)
    if len(files) > 1:
        from brrrtop.cli import rank_files

        return rank_files.replay(files, options)
    source = open_source(files[0], options.force)
    try:
        if options.record:
            convert(source, options.record)
        return show.finished(source, options)
    finally:
        source.close()


def convert(source: Source, path: str) -> None:
    """Writes all of a source into a recording, and rewinds it."""
    from brrrtop.sources import convert as converting

    span = source.span
    converting.convert(source, path)
    source.seek(span.t0_ns if span else 0)
    output.say(f"written to {path}")
