"""Chooses how something is shown: the screen, one plain report, or a line of JSON at a time. Its settings are
in a file, which the screen writes and a person may edit, and from which the theme follows:

    theme = "high-contrast"     # dark, light, high-contrast, colour-blind
    hidden = ["figures"]        # figures, history, advice, loader, step, kernels, side
    zoomed = ""
    gpu_hour = 2.5              # what an hour of one GPU costs: then shown is what could be saved
    currency = "€"

It is `config.toml` in the user's configuration folder. Options of a command and the environment go
before it. What cannot be read is as if it were not there: a screen opens in any case.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from brrrtop.cli import output
from brrrtop.cli.options import THEMES, Options
from brrrtop.cli.signals import note_interrupts
from brrrtop.errors import INTERRUPTED, UsageError
from brrrtop.model.snapshot import PANES, ZOOMED, Settings
from brrrtop.text import phrases
from brrrtop.text.headline import cost, headline_text
from collectors.own_files import own_folder, replace_file
from collectors.printable import printable

if TYPE_CHECKING:
    from brrrtop.model.snapshot import Snapshot
    from brrrtop.tui.feed import Driver
    from brrrtop.tui.palette import Palette

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

THEME_VARIABLE = "BRRRTOP_THEME"


def settings_path() -> Path:
    return (
        own_folder(Path(platformdirs.user_config_dir("brrrtop")), ".config/brrrtop") / "config.toml"
    )


def load_settings() -> Settings:
    """What is in the file; the defaults for what is not, or makes no sense."""
    given: dict[str, object] = {}
    with suppress(OSError, ValueError, RecursionError):
        given = tomllib.loads(settings_path().read_text("utf-8"))
    hidden = given.get("hidden")
    names = hidden if isinstance(hidden, list) else []
    theme, zoomed = given.get("theme"), given.get("zoomed")
    price, currency = given.get("gpu_hour"), given.get("currency")
    return Settings(
        theme=theme if isinstance(theme, str) else None,
        hidden=tuple(name for name in PANES if name in names),
        zoomed=zoomed if isinstance(zoomed, str) and zoomed in ZOOMED else "",
        gpu_hour=float(price) if isinstance(price, float | int) and price > 0 else 0.0,
        currency=printable(currency) if isinstance(currency, str) else "",
    )


def save_settings(settings: Settings) -> None:
    lines = [] if settings.theme is None else [f'theme = "{settings.theme}"']
    hidden = ", ".join(f'"{name}"' for name in settings.hidden)
    lines += [f"hidden = [{hidden}]", f'zoomed = "{settings.zoomed}"']
    if settings.gpu_hour:
        currency = settings.currency.replace("\\", "").replace('"', "")
        lines += [f"gpu_hour = {settings.gpu_hour!r}", f'currency = "{currency}"']
    with suppress(OSError):
        replace_file(settings_path(), ("\n".join(lines) + "\n").encode())


def palette_of(options: Options, kept: Settings) -> Palette:
    """How the screen is drawn on this terminal.

    Raises:
        UsageError: `BRRRTOP_THEME` names no theme.
    """
    from brrrtop.tui.palette import Palette

    chosen = options.theme or os.environ.get(THEME_VARIABLE) or None
    if chosen is not None and chosen not in THEMES:
        raise UsageError(f"there is no theme {chosen!r}", f"one of {', '.join(THEMES)}")
    if chosen is None and kept.theme in THEMES:
        chosen = kept.theme
    colour = not (options.no_color or os.environ.get("NO_COLOR"))
    return Palette(theme_name(os.environ, chosen), colour, output.only_ascii(options))


def theme_name(environment: Mapping[str, str], chosen: str | None) -> str:
    """The theme somebody chose, else `dark` or `light` as the terminal is.

    rxvt, Konsole and others name their background in COLORFGBG (`0;15`); dark where nothing is said.
    """
    if chosen is not None:
        return chosen
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    light = background.isdecimal() and (background == "7" or 9 <= int(background) <= 15)
    return "light" if light else "dark"


SERVED = "TEXTUAL_DRIVER"
"""Set where a browser is the terminal."""
MODERN = frozenset(
    "alacritty contour foot ghostty iterm2 kitty konsole mlterm rio st tmux vte wezterm".split()
)
"""Terminals that name themselves without their number of colours, which is 256 at least."""


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
        sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]  # 4 MB that asyncio does without
        with suppress(ImportError):  # a library's next version may not
            import_module("brrrtop.tui.app")
        if not sys.modules["ssl"]:
            del sys.modules["ssl"]
        from brrrtop.tui.app import BrrrtopApp

        kept = load_settings()
        palette = palette_of(options, kept)
        app = BrrrtopApp(
            driver,
            interval_s=options.interval,
            palette=palette,
            label=printable(label),
            settings=kept,
            remember=save_settings,
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
    spent = cost(snapshot, load_settings())
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
