"""Chooses how something is shown: the screen, one plain report, or a line of JSON at a time."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from brrrtop.cli import output, settings
from brrrtop.cli.options import Options
from brrrtop.cli.signals import note_interrupts
from brrrtop.errors import INTERRUPTED, UsageError
from brrrtop.text import phrases
from brrrtop.text.headline import cost, headline_text
from collectors.printable import printable

SERVED = "TEXTUAL_DRIVER"
"""Set where a browser is the terminal."""
MODERN = frozenset(
    "alacritty contour foot ghostty iterm2 kitty konsole mlterm rio st tmux vte wezterm".split()
)
"""Terminals that name themselves without their number of colours, which is 256 at least."""

if TYPE_CHECKING:
    from brrrtop.model.snapshot import Snapshot
    from brrrtop.tui.feed import Driver


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


def colour_system(environment: Mapping[str, str]) -> str | None:
    """`256` for a terminal whose name alone does not say so; None: what it says of itself is right."""
    name = environment.get("TERM", "").lower()
    if environment.get("COLORTERM") or not MODERN.intersection(name.split("-")):
        return None
    return "256"


def screen(driver: Driver, options: Options, label: str) -> int:
    """The full screen over `driver`, until somebody leaves it; the exit code.

    Raises:
        Exception: What ended the source early.
    """
    assumed = colour_system(os.environ)
    if assumed is not None:  # Textual reads it when it is imported
        os.environ.setdefault("TEXTUAL_COLOR_SYSTEM", assumed)
    os.environ.setdefault("ESCDELAY", "30")  # ms; Textual's 100 is felt
    with note_interrupts() as tell_from_now_on:
        from brrrtop.tui.app import BrrrtopApp

        kept = settings.load()
        palette = settings.palette_of(options, kept)
        app = BrrrtopApp(
            driver,
            interval_s=options.interval,
            palette=palette,
            label=printable(label),
            settings=kept,
            remember=settings.save,
            page=_page,
        )
        gc.freeze()  # modules and the file stay: nothing to look through again and again
        gc.enable()
        tell_from_now_on(app.interrupt)
        app.run()
    if app.fault is not None:
        raise app.fault
    from brrrtop.views.text import in_ascii

    width = shutil.get_terminal_size().columns
    for line in parting_lines(app.snapshot, options):
        for part in wrap(line, width):
            output.say(in_ascii(part) if palette.ascii else part)
    return INTERRUPTED if app.return_code is None else app.return_code


def _page(snapshot: Snapshot) -> str:
    from brrrtop.exporters.html import page

    return page(snapshot)


def parting_lines(snapshot: Snapshot, options: Options) -> list[str]:
    """What stays in the terminal when the screen has gone: the verdict, what to try, how to go on."""
    estimate = snapshot.estimate
    if estimate is None:
        return []
    lines = [
        f"{snapshot.source.label}: {phrases.badge(snapshot)}, {headline_text(snapshot)}".rstrip(
            ", "
        )
    ]
    spent = cost(snapshot, settings.load())
    lines += [f"  {spent}"] if spent else []
    for advisory in snapshot.advisories[:1]:
        lines.append(f"  try: {advisory.suggests}")
    program = os.environ.get("BRRRTOP_COMMAND", "brrrtop")
    if options.verb == "demo":
        again = f"demo {options.scenario or ''}".rstrip()
    elif options.files or options.record:
        again = f"replay {' '.join(options.files) or options.record}"
    elif snapshot.source.pid is not None:
        again = f"attach {snapshot.source.pid}; --record FILE keeps it for a replay"
    else:
        return lines
    return [*lines, f"  again: {program} {again}"]


def wrap(line: str, width: int) -> list[str]:
    """The line without broken words; a command stays whole, to be copied."""
    if line.startswith("  again: "):
        return [line]
    indent = " " * (4 if line.startswith(" ") else 2)
    return output.wrapped(line, max(20, width), rest=indent)
