"""The palettes as Textual wants them, for what it draws itself."""

from __future__ import annotations

from textual.theme import Theme as TextualTheme

from brrrtop.tui.palette import Theme


def textual_theme(theme: Theme) -> TextualTheme:
    palette = theme.colours
    return TextualTheme(
        name=f"brrrtop-{theme.name}",
        dark=theme.dark,
        primary=palette["compute"],
        secondary=palette["memory"],
        error=palette["alarm"],
        success=palette["good"],
        foreground=palette["text"],
        background=palette["background"],
        surface=palette["raised"],
        panel=palette["raised"],
    )
