"""Chooses how something is shown: the screen, one plain report, or a line of JSON at a time."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from brrrtop.cli import baseline, colours, output, settings
from brrrtop.cli.options import Options
from brrrtop.cli.signals import without_interrupts
from brrrtop.errors import INTERRUPTED, UsageError
from brrrtop.text import phrases
from brrrtop.text.hero import cost, hero
from brrrtop.text.printable import printable

FIRST_LOOKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0)
"""Shares of a source at which a replay looks for its first verdict."""
PATIENCE_S = 2.0
"""What an app may take to end after `^C`."""
HOME = -1
"""No exit code: somebody went back to the list of all trainers."""
DEMO_OF_RANKS_AFTER = 0.4
"""Share of a demo of ranks after which stack samples say at which line the late one is."""
DEMO_STEPS = 2
"""Whole steps a demo opens on: within one, what waits between steps is not seen yet."""

SERVED = "TEXTUAL_DRIVER"
"""Set where a browser is the terminal."""

if TYPE_CHECKING:
    from brrrtop.model.settings import Settings
    from brrrtop.model.snapshot import Snapshot
    from brrrtop.session.replay import Replay
    from brrrtop.sources.source import Source
    from brrrtop.tui.driver import Driver
    from brrrtop.tui.palette import Palette


def on_a_terminal() -> bool:
    """Whether a screen can be drawn and keys be read.

    Raises:
        UsageError: It could, but for stderr, which is where Textual draws.
    """
    if SERVED in os.environ:
        return True
    if os.environ.get("TERM", "") == "dumb":
        return False
    here = [s is not None and s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)]
    if here == [True, True, False]:
        raise UsageError(
            "the screen is drawn on stderr, which goes elsewhere",
            "leave out the `2>`, or ask for --once or --json",
        )
    return all(here)


def screen(driver: Driver, options: Options, label: str) -> int:
    """The full screen over `driver`, until somebody leaves it; the exit code.

    Raises:
        Exception: What ended the source early.
    """
    assumed = colours.colour_system(os.environ)
    if assumed is not None:  # Textual reads it when it is imported
        os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", assumed)
    with _told_of_interrupts() as interrupts:
        from brrrtop.tui.app import BACK, BrrrtopApp

        kept = settings.load()
        palette, notice = palette_of(options, kept)
        app = BrrrtopApp(
            driver,
            interval_s=options.interval,
            palette=palette,
            label=printable(label),
            settings=kept,
            remember=settings.save,
            page=_page,
            from_home=options.from_home,
            notice=notice,
        )
        gc.freeze()  # modules and the file stay: nothing to look through again and again
        gc.enable()
        interrupts.go_to(app.interrupt)
        app.run()
    if app.fault is not None:
        raise app.fault
    if app.return_code == BACK:
        return HOME
    from brrrtop.views.text import in_ascii

    width = shutil.get_terminal_size().columns
    for line in parting_lines(app.snapshot, options):
        for part in wrap(line, width):
            output.say(in_ascii(part) if palette.ascii else part)
    return INTERRUPTED if app.return_code is None else app.return_code


def _page(snapshot: Snapshot) -> str:
    from brrrtop.exporters.html import page

    return page(snapshot)


def palette_of(options: Options, kept: Settings) -> tuple[Palette, str]:
    """How the screen is drawn on this terminal, and what to know of its theme; empty: nothing.

    Raises:
        UsageError: The theme that was asked for does not exist, or has a mistake.
    """
    from brrrtop.cli import themes
    from brrrtop.tui.palette import THEMES, Palette

    own = themes.OwnThemes()
    chosen = themes.asked_for(options.theme)
    if chosen is not None:
        own.require(chosen)
    elif kept.theme in THEMES or kept.theme in own.themes:
        chosen = kept.theme
    name = colours.theme(os.environ, chosen)
    colour = not (options.no_color or os.environ.get("NO_COLOR"))
    palette = Palette(name, colour, output.only_ascii(options), tuple(own.themes.values()))
    return palette, own.notice(None if chosen else kept.theme, name) if colour else ""


def parting_lines(snapshot: Snapshot, options: Options) -> list[str]:
    """What stays in the terminal when the screen has gone: the verdict, what to try, how to go on."""
    estimate = snapshot.estimate
    if estimate is None:
        return []
    lines = [f"{snapshot.source.label}: {phrases.verdict(estimate)}, {hero(snapshot)}".rstrip(", ")]
    spent = cost(snapshot)
    lines += [f"  {spent}"] if spent else []
    for advisory in snapshot.advisories[:1]:
        lines.append(f"  try: {advisory.suggests}")
    program = os.environ.get("BRRRTOP_COMMAND", "brrrtop")
    again = (
        f"{program} replay {' '.join(options.files) or options.record}"
        if options.files or options.record
        else ""
    )
    if options.verb == "demo":
        again = f"{program} demo {options.scenario or ''}".rstrip()
    if not again and snapshot.source.pid is not None:
        again = f"{program} attach {snapshot.source.pid}; --record FILE keeps it for a replay"
    return [*lines, f"  again: {again}"] if again else lines


def wrap(line: str, width: int) -> list[str]:
    """The line without broken words; a command stays whole, to be copied."""
    if line.startswith("  again: "):
        return [line]
    indent = " " * (4 if line.startswith(" ") else 2)
    return textwrap.wrap(
        line, max(20, width), subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


class Interrupts:
    """What a SIGINT does while an app is made and runs: it is noted, then told to the app.

    asyncio's own answer is lost in an app that is just starting, and Python's in an import.
    """

    def __init__(self) -> None:
        self._tell: Callable[[], None] | None = None
        self._first_s: float | None = None

    def go_to(self, tell: Callable[[], None]) -> None:
        """`tell` is called at each from now on.

        Raises:
            KeyboardInterrupt: One came before.
        """
        self._tell = tell
        if self._first_s is not None:
            raise KeyboardInterrupt

    def came(self, _number: int, _frame: FrameType | None) -> None:
        """Raises:
        KeyboardInterrupt: It is not the first, and the app had a while to end.
        """
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        if now_s - self._first_s > PATIENCE_S:
            raise KeyboardInterrupt
        if self._tell is not None:
            self._tell()


@contextmanager
def _told_of_interrupts() -> Iterator[Interrupts]:
    interrupts = Interrupts()
    before = signal.signal(signal.SIGINT, interrupts.came)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def finished(source: Source, options: Options, *, loop: bool = False) -> int:
    """A recording or trace: the screen, or off a terminal one report of the whole."""
    if options.json and not options.once:
        return _lines(source, options)
    if options.once or not on_a_terminal():
        from brrrtop.session.analyze import analyze

        before = baseline.load(options)
        trimmed = before is not None
        whole = analyze(source, device=options.gpu, trimmed=trimmed, silenced=options.silenced)
        output.report(baseline.compare(whole, before), options)
        return 0
    gc.disable()  # until the first frame: a tenth of the start went into looking for garbage
    with without_interrupts():
        from brrrtop.cli.opening_view import FromFirstActivity
        from brrrtop.session.replay import Replay
        from brrrtop.session.session import Session

    session = Session(
        FromFirstActivity(source), keep_ns=None, device_id=options.gpu,
        baseline=baseline.load(options), silenced=options.silenced,
    )  # fmt: skip
    replay = Replay(session, speed=options.speed, loop=loop)
    to_first_verdict(replay, steps=DEMO_STEPS if loop else 0)
    return screen(replay, options, source.info.label)


def to_first_verdict(replay: Replay, steps: int = 0, after: float = 0.0) -> None:
    """Moves the playhead to where at least `steps` were judged, so that the screen opens on that.

    Args:
        after: Share of the source before which nothing is shown.
    """
    for share in (share for share in FIRST_LOOKS if share >= after):
        replay.seek(share)
        estimate = replay.advance().estimate
        if estimate is not None and (estimate.steps.count or 0) >= steps:
            replay.restart_here()
            return


def _lines(source: Source, options: Options) -> int:
    """One JSON object for each interval of the source's own time, as fast as they can be made."""
    from brrrtop.session.session import Session

    span = source.span
    before = baseline.load(options)
    session = Session(
        source, keep_ns=None, device_id=options.gpu, baseline=before, silenced=options.silenced
    )
    if span is None:
        output.report(session.advance(), options)
        return 0
    interval_ns = round(options.interval * 1e9)
    for now_ns in range(span.t0_ns + interval_ns, span.t1_ns, interval_ns):
        output.report(session.advance(now_ns), options)
    output.report(session.advance(span.t1_ns), options)
    return 0
