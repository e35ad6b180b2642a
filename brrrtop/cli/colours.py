"""How many colours a terminal has and whether it is light: by its own word, or as somebody chose."""

from __future__ import annotations

from collections.abc import Mapping

MODERN = frozenset(
    "alacritty contour foot ghostty iterm2 kitty konsole mlterm rio st tmux vte wezterm".split()
)
"""Terminals that name themselves without their number of colours, which is 256 at least."""


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


def theme(environment: Mapping[str, str], chosen: str | None) -> str:
    """The theme somebody chose, else `dark` or `light` as the terminal is."""
    if chosen is not None:
        return chosen
    return "light" if has_light_background(environment) else "dark"
