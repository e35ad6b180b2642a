"""Chooses how something is shown: the screen, one plain report, or a line of JSON at a time."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from brrrtop.cli import colours, output, settings
from brrrtop.cli.options import Options
from brrrtop.cli.signals import told_of_interrupts
from brrrtop.errors import INTERRUPTED, UsageError
from brrrtop.text import phrases
from brrrtop.text.hero import cost, hero
from brrrtop.text.printable import printable

HOME = -1
"""No exit code: somebody went back to the list of all trainers."""
SERVED = "TEXTUAL_DRIVER"
"""Set where a browser is the terminal."""

if TYPE_CHECKING:
    from brrrtop.model.settings import Settings
    from brrrtop.model.snapshot import Snapshot
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
    with told_of_interrupts() as interrupts:
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
