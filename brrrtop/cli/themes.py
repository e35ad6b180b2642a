"""How the screen is drawn on this terminal, and the themes that somebody wrote.

Those are `themes/NAME.toml` beside the settings file, a theme a file:

    base = "dark"               # what is not given below is as there
    [colours]
    background = "#1d2021"
    compute = "#83a598"
    [sixteen]                   # ANSI's 0 to 15, for terminals with so many colours
    compute = 6

A file with a mistake is no theme: whoever asks for it reads what is wrong with it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brrrtop.cli import output, settings
from brrrtop.cli.options import Options
from brrrtop.errors import UsageError
from brrrtop.model.settings import Settings
from brrrtop.tui.palette import DARK, THEMES, Palette, Theme
from brrrtop.tui.sixteen import look_alikes

VARIABLE = "BRRRTOP_THEME"
_KEYS = ("base", "colours", "sixteen")
_NAME = re.compile(r"[\w-]{1,40}", re.ASCII)
_COLOUR = re.compile(r"#[0-9a-fA-F]{6}")


def folder() -> Path:
    return settings.path().parent / "themes"


class OwnThemes:
    """What is in the folder: themes, and what is wrong with the other files."""

    def __init__(self) -> None:
        self.themes: dict[str, Theme] = {}
        self.faults: dict[str, UsageError] = {}
        for path in sorted(folder().glob("*.toml")):
            try:
                self.themes[path.stem] = read(path)
            except UsageError as fault:
                self.faults[path.stem] = fault

    def require(self, name: str) -> str:
        """The name, of a theme that there is.

        Raises:
            UsageError: There is none of that name, or its file has a mistake.
        """
        if name in self.faults and name not in THEMES:
            raise self.faults[name]
        known = (*THEMES, *self.themes)
        if name not in known:
            hint = f"{_hint(name, known)} Your own go to {folder()}"
            raise UsageError(f"there is no theme {name!r}", hint)
        return name

    def notice(self, kept: str | None, chosen: str) -> str:
        """What somebody must know of the theme they have chosen; empty: nothing."""
        if kept in self.faults:
            fault = self.faults[kept]
            return f"{fault.message}: {fault.action}"
        doubts = look_alikes(self.themes[chosen]) if chosen in self.themes else []
        return f"theme {chosen}: {'; '.join(doubts)}" if doubts else ""


def palette_of(options: Options, kept: Settings) -> tuple[Palette, str]:
    """How the screen is drawn on this terminal, and what to know of its theme; empty: nothing.

    Raises:
        UsageError: The theme that was asked for does not exist, or has a mistake.
    """
    own = OwnThemes()
    chosen = options.theme or os.environ.get(VARIABLE) or None
    if chosen is not None:
        own.require(chosen)
    elif kept.theme in THEMES or kept.theme in own.themes:
        chosen = kept.theme
    name = name_of(os.environ, chosen)
    colour = not (options.no_color or os.environ.get("NO_COLOR"))
    palette = Palette(name, colour, output.only_ascii(options), tuple(own.themes.values()))
    return palette, own.notice(None if chosen else kept.theme, name) if colour else ""


def name_of(environment: Mapping[str, str], chosen: str | None) -> str:
    """The theme somebody chose, else `dark` or `light` as the terminal is."""
    if chosen is not None:
        return chosen
    return "light" if _has_light_background(environment) else "dark"


def _has_light_background(environment: Mapping[str, str]) -> bool:
    """What rxvt, Konsole and others say in COLORFGBG (`0;15`); dark where nothing is said."""
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return background.isdecimal() and (background == "7" or 9 <= int(background) <= 15)


def read(path: Path) -> Theme:
    """The theme in a file.

    Raises:
        UsageError: Says what is wrong in it, and what to write.
    """
    if not _NAME.fullmatch(path.stem) or path.stem in THEMES:
        taken = "is a theme that brrrtop has" if path.stem in THEMES else "is no name for a theme"
        raise UsageError(f"{path}: {path.stem!r} {taken}", "rename it: letters, digits, - and _")
    try:
        given = settings.read(path)
    except (OSError, ValueError) as fault:
        raise UsageError(f"{path} cannot be read", str(fault)) from None
    _know(path, given, _KEYS)
    base = given.get("base", "dark")
    if base not in THEMES:
        raise UsageError(f"{path}: base = {base!r} is no theme", f"one of {', '.join(THEMES)}")
    colours, sixteen = (_table(path, given, key) for key in ("colours", "sixteen"))
    for role, colour in colours.items():
        if not isinstance(colour, str) or not _COLOUR.fullmatch(colour):
            raise UsageError(f"{path}: {role} = {colour!r} is no colour", 'write "#rrggbb"')
    for role, number in sixteen.items():
        if type(number) is not int or not 0 <= number <= 15:
            raise UsageError(f"{path}: {role} = {number!r} is none of 16 colours", "write 0 to 15")
    lower = {role: colour.lower() for role, colour in colours.items()}
    return Theme(path.stem, {**THEMES[base].colours, **lower}, sixteen)


def _table(path: Path, given: Mapping[str, Any], key: str) -> dict[str, Any]:
    table = given.get(key, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {key} is no table", f"write [{key}], and a line a colour")
    _know(path, table, tuple(DARK))
    return table


def _know(path: Path, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in given:
        if key not in known:
            raise UsageError(f"{path}: there is no {key!r}", _hint(key, known))


def _hint(word: str, known: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
