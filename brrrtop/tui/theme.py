"""The palettes as Textual wants them, for what it draws itself."""

from __future__ import annotations

from textual.theme import Theme

from brrrtop.tui.palette import THEMES


def theme(name: str) -> Theme:
    palette, dark = THEMES[name]
    return Theme(
        name=f"brrrtop-{name}",
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
