"""The palettes as Textual wants them, for what it draws itself."""

from __future__ import annotations

from typing import Any

from textual.app import App
from textual.theme import Theme as TextualTheme

from brrrtop.tui.palette import Palette, Theme


def begin(app: App[Any], palette: Palette) -> None:
    """Has an app that does not run yet know the themes and start in the palette's.

    A theme that is set when it runs has Textual parse all style sheets another two times.
    """
    for theme in palette.themes.values():
        app.register_theme(textual_theme(theme))
    app.set_reactive(App.theme, textual_name(palette))
    dark = app.current_theme.dark
    app.update_classes({"-dark-mode": dark, "-light-mode": not dark}, update=False)
    app._refresh_truecolor_filter(app.ansi_theme)
    app.stylesheet.set_variables(app.get_css_variables())


def textual_name(palette: Palette) -> str:
    """What Textual calls the palette's theme."""
    return f"brrrtop-{palette.theme}"


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
