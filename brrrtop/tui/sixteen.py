"""The palette of terminals with sixteen colours, or eight.

The nearest of sixteen to our orange and to our pink is the same bright red: so each role has a number.
"""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

from brrrtop.tui.palette import SIXTEEN_DARK, SIXTEEN_LIGHT, Theme


@lru_cache(32)
def _by_hue(theme: Theme) -> dict[str, Color]:
    return {
        theme.colours[role].lower(): Color.parse(f"color({number})")
        for role, number in (SIXTEEN_DARK if theme.dark else SIXTEEN_LIGHT).items()
    }


_VGA = (
    (0, 0, 0), (170, 0, 0), (0, 170, 0), (170, 85, 0), (0, 0, 170), (170, 0, 170), (0, 170, 170),
    (170, 170, 170), (85, 85, 85), (255, 85, 85), (85, 255, 85), (255, 255, 85), (85, 85, 255),
    (255, 85, 255), (85, 255, 255), (255, 255, 255),
)  # fmt: skip
"""What Rich compares with when it looks for the nearest of the sixteen."""


def ansi_theme() -> TerminalTheme:
    """The sixteen as Rich takes them: what is below a dialog goes through true colours once more, and
    each is to come back as the number that it was."""
    return TerminalTheme(_VGA[0], _VGA[15], list(_VGA[:8]), list(_VGA[8:]))


def in_sixteen(segment: Segment, theme: Theme) -> Segment:
    """Puts the colours of a theme into the sixteen; any other goes to the nearest, as ever."""
    text, style, control = segment
    return Segment(text, mapped(style, theme) if style else style, control)


@lru_cache(2048)
def mapped(style: Style, theme: Theme) -> Style:
    """The style with both its colours among the sixteen; on the cursor all text has one colour."""
    text, field = _number(style.color, theme), _number(style.bgcolor, theme)
    if style.bgcolor is not None and style.bgcolor == Color.parse(theme.colours["cursor"]):
        text = _by_hue(theme)[theme.colours["text"]]
    return style + Style(color=text, bgcolor=field)


def _number(colour: Color | None, theme: Theme) -> Color | None:
    if colour is None or colour.type is not ColorType.TRUECOLOR or colour.triplet is None:
        return None
    return _by_hue(theme).get(colour.triplet.hex)
