"""The palette of terminals with sixteen colours, or eight: chosen by hand, as the nearest ones clash.

The nearest of sixteen to our orange and to our pink is the same bright red. Numbers are ANSI's;
those from 8 on are the bright ones, which terminals with eight colours show as 0 to 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from rich.color import Color, ColorType
from rich.segment import Segment
from rich.style import Style
from textual.color import Color as Background
from textual.filter import LineFilter

from brrrtop.tui.palette import THEMES

DARK_NUMBERS: Mapping[str, int] = {
    "background": 0, "raised": 0, "cursor": 4, "text": 15, "muted": 7, "rule": 8, "on_fill": 0,
    "compute": 6, "memory": 3, "overhead": 5, "underfilled": 12, "comm": 2, "copy": 10,
    "idle1": 5, "idle2": 13, "idle3": 5, "idle4": 13, "idle5": 5, "launching": 10, "unknown": 7,
    "good": 2, "alarm": 9,
}  # fmt: skip
LIGHT_NUMBERS: Mapping[str, int] = {
    "background": 15, "raised": 7, "cursor": 14, "text": 0, "muted": 8, "rule": 7, "on_fill": 15,
    "compute": 4, "memory": 1, "overhead": 5, "underfilled": 6, "comm": 2, "copy": 10,
    "idle1": 5, "idle2": 13, "idle3": 5, "idle4": 13, "idle5": 5, "launching": 2, "unknown": 8,
    "good": 2, "alarm": 9,
}  # fmt: skip


def _by_hue(palette: Mapping[str, str], numbers: Mapping[str, int]) -> dict[str, Color]:
    return {palette[role]: Color.parse(f"color({number})") for role, number in numbers.items()}


_COLOURS = {
    name: _by_hue(palette, DARK_NUMBERS if dark else LIGHT_NUMBERS)
    for name, (palette, dark) in THEMES.items()
}
_CURSORS = {name: Color.parse(palette["cursor"]) for name, (palette, _dark) in THEMES.items()}


class Sixteen(LineFilter):
    """Puts the colours of a palette into the sixteen; any other goes to the nearest, as ever."""

    def __init__(self, theme: str) -> None:
        super().__init__()
        self._theme = theme

    def apply(self, segments: list[Segment], background: Background) -> list[Segment]:
        return [
            Segment(text, mapped(style, self._theme) if style else style, control)
            for text, style, control in segments
        ]


@lru_cache(2048)
def mapped(style: Style, theme: str) -> Style:
    """The style with both its colours among the sixteen; on the cursor all text has one colour."""
    text, field = _number(style.color, theme), _number(style.bgcolor, theme)
    if style.bgcolor is not None and style.bgcolor == _CURSORS[theme]:
        text = _COLOURS[theme][THEMES[theme][0]["text"]]
    return style + Style(color=text, bgcolor=field)


def _number(colour: Color | None, theme: str) -> Color | None:
    if colour is None or colour.type is not ColorType.TRUECOLOR or colour.triplet is None:
        return None
    return _COLOURS[theme].get(colour.triplet.hex)
