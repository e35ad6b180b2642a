"""The settings file, which the screen writes and a person may edit; and the theme that follows from it.

    theme = "high-contrast"     # dark, light, high-contrast, colour-blind
    hidden = ["figures"]        # figures, history, advice, loader, step, kernels, side
    zoomed = ""
    gpu_hour = 2.5              # what an hour of one GPU costs: then shown is what could be saved
    currency = "€"

It is `config.toml` in the user's configuration folder. Options of a command and the environment go
before it. What cannot be read is as if it were not there: a screen opens in any case.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from brrrtop.cli import output
from brrrtop.cli.options import THEMES, Options
from brrrtop.errors import UsageError
from brrrtop.model.snapshot import PANES, ZOOMED, Settings
from collectors.own_files import own_folder, replace_file
from collectors.printable import printable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

THEME_VARIABLE = "BRRRTOP_THEME"

if TYPE_CHECKING:
    from brrrtop.tui.palette import Palette


def path() -> Path:
    return (
        own_folder(Path(platformdirs.user_config_dir("brrrtop")), ".config/brrrtop") / "config.toml"
    )


def load() -> Settings:
    """What is in the file; the defaults for what is not, or makes no sense."""
    given: dict[str, object] = {}
    with suppress(OSError, ValueError, RecursionError):
        given = tomllib.loads(path().read_text("utf-8"))
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


def save(settings: Settings) -> None:
    lines = [] if settings.theme is None else [f'theme = "{settings.theme}"']
    listed = ", ".join(f'"{name}"' for name in settings.hidden)
    lines += [f"hidden = [{listed}]", f'zoomed = "{settings.zoomed}"']
    if settings.gpu_hour:
        currency = settings.currency.replace("\\", "").replace('"', "")
        lines += [f"gpu_hour = {settings.gpu_hour!r}", f'currency = "{currency}"']
    with suppress(OSError):
        replace_file(path(), ("\n".join(lines) + "\n").encode())


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
