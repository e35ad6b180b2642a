"""Chooses how something is shown: the screen, one plain report, or a line of JSON at a time."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from brrrtop.cli import output
from brrrtop.cli.options import Options

FIRST_LOOKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
"""Shares of a source at which a replay looks for its first verdict."""

if TYPE_CHECKING:
    from brrrtop.session.replay import Replay
    from brrrtop.session.source import Source
    from brrrtop.tui.driver import Driver


def on_a_terminal() -> bool:
    """Whether a screen can be drawn and keys be read."""
    if os.environ.get("TERM", "") == "dumb":
        return False
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


def screen(driver: Driver, options: Options, label: str) -> int:
    """The full screen over `driver`, until somebody leaves it.

    Raises:
        Exception: What ended the source early.
    """
    from brrrtop.tui.app import BrrrtopApp
    from brrrtop.tui.look import Look

    colour = not (options.no_color or os.environ.get("NO_COLOR"))
    ascii_only = options.ascii or not output.speaks_unicode()
    look = Look(colour=colour, ascii=ascii_only)
    app = BrrrtopApp(driver, interval_s=options.interval, look=look, label=label)
    app.run()
    if app.fault is not None:
        raise app.fault
    return 0


def finished(source: Source, options: Options, *, loop: bool = False) -> int:
    """A recording or trace: the screen, or off a terminal one report of the whole."""
    if options.json and not options.once:
        return _lines(source, options)
    if options.once or not on_a_terminal():
        from brrrtop.session.whole import analyze

        output.report(analyze(source, device=options.gpu), options)
        return 0
    from brrrtop.cli.trimmed import FromFirstActivity
    from brrrtop.session.replay import Replay
    from brrrtop.session.state import Session

    session = Session(FromFirstActivity(source), keep_ns=None, device_id=options.gpu)
    replay = Replay(session, speed=options.speed, loop=loop)
    _to_first_verdict(replay)
    return screen(replay, options, source.info.label)


def _to_first_verdict(replay: Replay) -> None:
    """Moves the playhead to where something has been judged, so that the screen opens on it."""
    for share in FIRST_LOOKS:
        replay.seek(share)
        if replay.advance().estimate is not None:
            return


def _lines(source: Source, options: Options) -> int:
    """One JSON object for each interval of the source's own time, as fast as they can be made."""
    from brrrtop.session.state import Session

    span = source.span
    session = Session(source, keep_ns=None, device_id=options.gpu)
    if span is None:
        output.report(session.advance(), options)
        return 0
    interval_ns = round(options.interval * 1e9)
    for now_ns in range(span.t0_ns + interval_ns, span.t1_ns, interval_ns):
        output.report(session.advance(now_ns), options)
    output.report(session.advance(span.t1_ns), options)
    return 0
