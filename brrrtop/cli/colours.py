"""How many colours a terminal has and whether it is light: by its own word, or as somebody chose."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

MODERN = frozenset(
    "alacritty contour foot ghostty iterm2 kitty konsole mlterm rio st tmux vte wezterm".split()
)
"""Terminals that name themselves without their number of colours, which is 256 at least."""
_WORDS = {"dark": True, "light": False}


def colour_system(environment: Mapping[str, str]) -> str | None:
    """`256` for a terminal whose name alone does not say so; None: what it says of itself is right."""
    name = environment.get("TERM", "").lower()
    if environment.get("COLORTERM") or not MODERN.intersection(name.split("-")):
        return None
    return "256"


def has_light_background(environment: Mapping[str, str]) -> bool:
    """What rxvt, Konsole and others say in COLORFGBG (`0;15`); dark where nothing is said."""
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return background.isdecimal() and (background == "7" or 9 <= int(background) <= 15)


def _path() -> Path:
    import platformdirs  # takes 10 ms that a report does not need

    return Path(platformdirs.user_state_dir("brrrtop")) / "background"


def is_dark(environment: Mapping[str, str]) -> bool:
    """Whether the screen is to be dark."""
    with suppress(OSError, UnicodeDecodeError):
        kept = _WORDS.get(_path().read_text("ascii").strip())
        if kept is not None:
            return kept
    return not has_light_background(environment)


def remember(dark: bool) -> None:
    """For the next time; where nothing can be written, not."""
    with suppress(OSError):
        _path().parent.mkdir(parents=True, exist_ok=True)
        _path().write_text("dark\n" if dark else "light\n", "ascii")
