"""The palettes as Textual wants them, for what it draws itself."""

from __future__ import annotations

from textual.theme import Theme

from brrrtop.tui.palette import DARK, LIGHT


def theme(name: str, dark: bool) -> Theme:
    palette = DARK if dark else LIGHT
    return Theme(
        name=name,
        dark=dark,
        primary=palette["compute"],
        secondary=palette["memory"],
        error=palette["alarm"],
        success=palette["good"],
        foreground=palette["text"],
        background=palette["background"],
        surface=palette["raised"],
        panel=palette["raised"],
    )
