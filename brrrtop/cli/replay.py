"""`brrrtop replay FILE`: the screen over a recording or a trace."""

from __future__ import annotations

from brrrtop.cli import show
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError


def run(options: Options) -> int:
    from brrrtop.session.opening import open_source

    if not 0 < options.speed < 1e6:
        raise UsageError(f"--speed {options.speed:g} is not above 0", "1 is as it happened")
    source = open_source(options.file)
    try:
        return show.finished(source, options)
    finally:
        source.close()
