"""Colours and glyphs: how one meaning looks everywhere."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct, field
from rich.style import Style
from rich.text import Text

from brrrtop.model.account import IDLE_CAUSES


class BucketStyle(Struct, frozen=True):
    """How one bucket of time is told apart without colour."""

    fill: str
    ascii_fill: str
    hue: str
    """Key of the palette."""


_COMM = BucketStyle("╳", "X", "overhead")
_COPY = BucketStyle("×", "x", "overhead")
_PAUSE = BucketStyle("▒", ":", "overhead")
MARKS: Mapping[str, BucketStyle] = MappingProxyType(
    {
        "compute": BucketStyle("█", "#", "compute"),
        "memory": BucketStyle("▓", "=", "memory"),
        "overhead": BucketStyle("░", ".", "overhead"),
        "underfilled": BucketStyle("▚", "u", "overhead"),
        "comm": _COMM,
        "copy": _COPY,
        "exposed_comm": _COMM,
        "exposed_copy": _COPY,
        **{f"idle_{cause}": _PAUSE for cause in IDLE_CAUSES},
        "idle_input": BucketStyle("░", ".", "overhead"),
        "unknown": BucketStyle("·", "?", "unknown"),
        "mixed": BucketStyle("▒", "+", "text"),
        "launching": BucketStyle("▄", "L", "launching"),
        "optimizer": BucketStyle("▞", "A", "launching"),
        "annotation": BucketStyle("▁", "_", "rule"),
        "host": BucketStyle("▄", "H", "muted"),
    }
)
"""Sides of kernels, buckets of the account and of the split. What is overhead is one hue: labels name its
causes, and idle time is a pattern."""

_ROLES = (
    ("background", "#101418", "#fbfbf9", "#000000", "#101418"),
    ("raised", "#1b222a", "#edeeec", "#000000", "#1b222a"),
    ("cursor", "#2c3a4a", "#d3e2f0", "#00457a", "#2c3a4a"),
    ("text", "#d7dde4", "#1c2126", "#ffffff", "#d7dde4"),
    ("muted", "#8d99a6", "#5a636d", "#d0d0d0", "#8d99a6"),
    ("rule", "#46525f", "#a9b0b8", "#a0a0a0", "#46525f"),
    ("on_fill", "#0b0e11", "#ffffff", "#000000", "#0b0e11"),
    ("compute", "#56b4e9", "#00639e", "#5cd6ff", "#7a9dff"),
    ("memory", "#f0a030", "#9a5200", "#ffb700", "#ffb000"),
    ("overhead", "#f079a8", "#b3175f", "#ff8fc7", "#f2619f"),
    ("launching", "#7fb3a6", "#2c6b5c", "#7fb3a6", "#7fb3a6"),
    ("unknown", "#8a94a0", "#626b75", "#c0c0c0", "#8a94a0"),
    ("good", "#3fc59d", "#00734f", "#4dffb8", "#7a9dff"),
    ("alarm", "#ff6b5e", "#c1121f", "#ff8a80", "#fe7a1f"),
)
"""A role's colour in the four themes; a terminal of few colours shows the nearest it has.

Hues after Okabe and Ito, which the common colour-blindnesses tell apart; each has at least 4.5:1 on its
background, and `on_fill` at least 4.5:1 on it (WCAG 2.1, 1.4.3). For the colour-blind blue, yellow,
magenta and greys after IBM's palette: nothing hangs on red against green.
"""


class Theme(Struct, frozen=True, eq=False):
    name: str
    colours: Mapping[str, str]
    """By role, `#rrggbb`."""

    @property
    def dark(self) -> bool:
        return luminance(self.colours["background"]) < luminance(self.colours["text"])


def luminance(colour: str) -> float:
    """Of `#rrggbb`, 0..1, after WCAG 2.1."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _column(number: int) -> Mapping[str, Any]:
    return MappingProxyType({row[0]: row[number] for row in _ROLES})


DARK, LIGHT = _column(1), _column(2)
THEMES: Mapping[str, Theme] = MappingProxyType(
    {
        name: Theme(name, _column(number))
        for number, name in enumerate(("dark", "light", "high-contrast", "colour-blind"), 1)
    }
)

_GLYPHS = {
    "-": "–—─━╌┄╴╶▔▁‐‑−",
    "|": "│┃▏▎▍▌▐▕┆",
    "+": "┌┐└┘├┤┬┴┼╭╮╰╯",
    "#": "█▉▊▋▇▆▅▄▃▂▚▞",
    "*": "•●◆■▪○◇□",
    "=": "▓",
    "%": "▒",
    ".": "░·",
    "~": "…±≈",
    ">": "→▸▶≥",
    "<": "←≤",
    "^": "↑▲",
    "v": "↓▼✓",
    "x": "×",
    "X": "╳",
    "u": "µ",
    "!": "⚠",
    "/": "╱",
    "\\": "╲",
    " ": "°\u00a0",
    "'": "’‘",
    '"': "“”",
}
ASCII_FOR = {ord(glyph): sign for sign, glyphs in _GLYPHS.items() for glyph in glyphs}


class Palette(Struct, frozen=True, eq=False):
    theme: str = "dark"
    colour: bool = True
    ascii: bool = False
    _styles: dict[tuple[str | None, str | None, bool], Style] = field(default_factory=dict)

    @property
    def palette(self) -> Mapping[str, str]:
        return self.chosen.colours

    @property
    def chosen(self) -> Theme:
        return THEMES[self.theme]

    def with_theme(self, name: str = "") -> Palette:
        names = tuple(THEMES)
        name = name or names[(names.index(self.theme) + 1) % len(names)]
        return Palette(name, self.colour, self.ascii)

    def style(self, hue: str, *, bold: bool = False) -> Style:
        return self._style(hue if self.colour else None, None, bold)

    def text(self, words: str, hue: str = "text", *, bold: bool = False) -> Text:
        return Text.styled(words, self.style(hue, bold=bold))

    def filled(self, bucket: str) -> Style:
        return self._style("on_fill", bucket) if self.colour else Style.null()

    def boundary(self, below: str, above: str) -> Style:
        return self._style(below, above)

    def _style(self, text: str | None, ground: str | None, bold: bool = False) -> Style:
        """Made once, as it is looked up for every cell."""
        key = (text, ground, bold)
        if key not in self._styles:
            colour, field = (one and self.palette[_hue(one)] for one in key[:2])
            self._styles[key] = Style(color=colour, bgcolor=field, bold=bold or None)
        return self._styles[key]

    @property
    def cursor(self) -> Style:
        return Style(bgcolor=self.palette["cursor"]) if self.colour else Style(reverse=True)

    def fill(self, bucket: str) -> str:
        mark = MARKS[bucket]
        return mark.ascii_fill if self.ascii else mark.fill

    def texture(self, bucket: str) -> str:
        """The character of an area: work is solid, idle time is not, and waits for data are lightest."""
        if self.ascii or not self.colour or bucket.startswith("idle_"):
            return self.fill(bucket)
        return "█"

    def keys(self, names: str) -> str:
        """Names of keys; in ASCII arrows are words, as `<` and `>` are keys of their own."""
        if not self.ascii:
            return names
        for arrow, word in _ARROWS.items():
            names = names.replace(arrow, word)
        return names


_ARROWS = {
    "↑↓": "up/down", "←→": "left/right", "↑ ↓": "up down", "← →": "left right",
}  # fmt: skip


def _hue(name: str) -> str:
    mark = MARKS.get(name)
    return mark.hue if mark else name


def to_ascii(text: str) -> str:
    """`text` in ASCII, a cell for a cell where the glyph is known; `?` for what is not."""
    if text.isascii():
        return text
    return text.translate(ASCII_FOR).encode("ascii", "replace").decode("ascii")
