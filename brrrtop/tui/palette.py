"""Colours, letters and glyphs: how one meaning looks everywhere. Every meaning has a letter too."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field
from rich.style import Style


class BucketStyle(Struct, frozen=True):
    """How one bucket of time is told apart without colour."""

    letter: str
    fill: str
    ascii_fill: str
    hue: str
    """Key of the palette."""


_COMM = BucketStyle("X", "╳", "X", "comm")
_COPY = BucketStyle("x", "×", "x", "copy")
MARKS: Mapping[str, BucketStyle] = MappingProxyType(
    {
        "compute": BucketStyle("C", "█", "#", "compute"),
        "memory": BucketStyle("M", "▓", "=", "memory"),
        "overhead": BucketStyle("O", "░", ".", "overhead"),
        "underfilled": BucketStyle("U", "▒", "u", "underfilled"),
        "comm": _COMM,
        "copy": _COPY,
        "exposed_comm": _COMM,
        "exposed_copy": _COPY,
        "idle_input": BucketStyle("i", "i", "i", "idle_input"),
        "idle_launch": BucketStyle("l", "l", "l", "idle_launch"),
        "idle_sync": BucketStyle("s", "s", "s", "idle_sync"),
        "idle_allocator": BucketStyle("a", "a", "a", "idle_other"),
        "idle_compile": BucketStyle("j", "j", "j", "idle_other"),
        "idle_gc": BucketStyle("g", "g", "g", "idle_other"),
        "idle_checkpoint": BucketStyle("k", "k", "k", "idle_other"),
        "idle_logging": BucketStyle("o", "o", "o", "idle_other"),
        "idle_evaluation": BucketStyle("e", "e", "e", "idle_other"),
        "idle_io": BucketStyle("f", "f", "f", "idle_input"),
        "idle_host": BucketStyle("h", "h", "h", "idle_host"),
        "idle_device": BucketStyle("d", "d", "d", "idle_other"),
        "idle_other_process": BucketStyle("p", "p", "p", "idle_other"),
        "idle_unknown": BucketStyle("n", "n", "n", "idle_other"),
        "unknown": BucketStyle("?", "·", "?", "unknown"),
        "mixed": BucketStyle("+", "▒", "+", "text"),
        "launching": BucketStyle("L", "▄", "L", "launching"),
        "optimizer": BucketStyle("A", "▚", "A", "underfilled"),
        "annotation": BucketStyle("r", "▁", "_", "rule"),
        "host": BucketStyle("H", "▄", "H", "muted"),
    }
)

"""Sides of kernels, and the buckets of `words.buckets` and of the split."""

DARK: Mapping[str, str] = MappingProxyType(
    {
        "background": "#101418",
        "raised": "#1b222a",
        "cursor": "#2c3a4a",
        "text": "#d7dde4",
        "muted": "#8d99a6",
        "rule": "#46525f",
        "on_fill": "#0b0e11",
        "compute": "#56b4e9",
        "memory": "#f0a030",
        "overhead": "#f079a8",
        "underfilled": "#b79bf2",
        "comm": "#e8d44d",
        "copy": "#c3b23a",
        "idle_input": "#f079a8",
        "idle_launch": "#d0588f",
        "idle_other": "#b5718f",
        "idle_sync": "#f7bfd8",
        "idle_host": "#b56d98",
        "launching": "#7fb3a6",
        "unknown": "#8a94a0",
        "good": "#3fc59d",
        "alarm": "#ff6b5e",
    }
)
LIGHT: Mapping[str, str] = MappingProxyType(
    {
        "background": "#fbfbf9",
        "raised": "#edeeec",
        "cursor": "#d3e2f0",
        "text": "#1c2126",
        "muted": "#5a636d",
        "rule": "#a9b0b8",
        "on_fill": "#ffffff",
        "compute": "#00639e",
        "memory": "#9a5200",
        "overhead": "#b3175f",
        "underfilled": "#6a3fb5",
        "comm": "#6d6200",
        "copy": "#7b6f14",
        "idle_input": "#b3175f",
        "idle_launch": "#7d1546",
        "idle_other": "#8c4667",
        "idle_sync": "#c0407c",
        "idle_host": "#6b3a5a",
        "launching": "#2c6b5c",
        "unknown": "#626b75",
        "good": "#00734f",
        "alarm": "#c1121f",
    }
)
"""Hues after Okabe and Ito, which the common colour-blindnesses tell apart; each has at least 4.5:1
on its background, and `on_fill` at least 4.5:1 on it (WCAG 2.1, 1.4.3)."""

HIGH_CONTRAST: Mapping[str, str] = MappingProxyType(
    {
        **DARK,
        "background": "#000000",
        "raised": "#000000",
        "cursor": "#00457a",
        "text": "#ffffff",
        "muted": "#d0d0d0",
        "rule": "#a0a0a0",
        "on_fill": "#000000",
        "compute": "#5cd6ff",
        "memory": "#ffb700",
        "overhead": "#ff8fc7",
        "idle_input": "#ff8fc7",
        "idle_launch": "#f05ba6",
        "idle_other": "#e0a0c0",
        "idle_host": "#d98cc0",
        "unknown": "#c0c0c0",
        "good": "#4dffb8",
        "alarm": "#ff8a80",
    }
)
COLOUR_BLIND: Mapping[str, str] = MappingProxyType(
    {
        **DARK,
        "compute": "#7a9dff",
        "memory": "#ffb000",
        "overhead": "#f2619f",
        "underfilled": "#a390f5",
        "comm": "#e0e0e0",
        "copy": "#b4b4b4",
        "idle_input": "#f2619f",
        "idle_launch": "#d4559a",
        "idle_sync": "#ffc4de",
        "good": "#7a9dff",
        "alarm": "#fe7a1f",
    }
)
"""Blue, yellow, magenta and greys after IBM's palette: nothing hangs on red against green."""


class Theme(Struct, frozen=True, eq=False):
    """One set of colours."""

    name: str
    colours: Mapping[str, str]
    """By role, `#rrggbb`."""
    sixteen: Mapping[str, int] = field(default_factory=dict)
    """ANSI's number of a role on a terminal with 16 colours, where it is not the usual one."""

    @property
    def dark(self) -> bool:
        """Whether text on its background is the lighter one."""
        return luminance(self.colours["background"]) < luminance(self.colours["text"])


def luminance(colour: str) -> float:
    """Of `#rrggbb`, 0..1, after WCAG 2.1."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


THEMES: Mapping[str, Theme] = MappingProxyType(
    {
        name: Theme(name, colours)
        for name, colours in (
            ("dark", DARK), ("light", LIGHT), ("high-contrast", HIGH_CONTRAST),
            ("colour-blind", COLOUR_BLIND),
        )
    }
)  # fmt: skip

ASCII_FOR = str.maketrans(
    {
        **dict.fromkeys("–—─━╌┄╴╶▔▁‐‑−", "-"),
        **dict.fromkeys("│┃▏▎▍▌▐▕┆", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
        **dict.fromkeys("█▉▊▋▇▆▅▄▃▂▚", "#"),
        **dict.fromkeys("•●◆■▪○◇□", "*"),
        **dict.fromkeys("’‘", "'"),
        **dict.fromkeys("“”", '"'),
        "▓": "=",
        "▒": "%",
        "░": ".",
        "·": ".",
        "…": "~",
        "→": ">",
        "←": "<",
        "↑": "^",
        "↓": "v",
        "▲": "^",
        "▼": "v",
        "▸": ">",
        "▶": ">",
        "×": "x",
        "╳": "X",
        "≥": ">",
        "≤": "<",
        "±": "~",
        "≈": "~",
        "µ": "u",
        "°": " ",
        "⚠": "!",
        "✓": "v",
        "╱": "/",
        "╲": "\\",
        "\u00a0": " ",
    }
)


class Palette(Struct, frozen=True, eq=False):
    """One way of drawing: in which theme, in colour or not, all of Unicode or ASCII."""

    theme: str = "dark"
    colour: bool = True
    ascii: bool = False
    own: tuple[Theme, ...] = ()
    """Themes that somebody wrote, beside those that brrrtop has."""
    _styles: dict[str, Style] = field(default_factory=dict)

    @property
    def palette(self) -> Mapping[str, str]:
        return self.chosen.colours

    @property
    def chosen(self) -> Theme:
        return next((one for one in self.own if one.name == self.theme), None) or THEMES[self.theme]

    @property
    def themes(self) -> Mapping[str, Theme]:
        return {**THEMES, **{one.name: one for one in self.own}}

    def with_theme(self, name: str = "") -> Palette:
        """The same in that theme; in the next one where none is named."""
        names = tuple(self.themes)
        name = name or names[(names.index(self.theme) + 1) % len(names)]
        return Palette(name, self.colour, self.ascii, self.own)

    def style(self, hue: str, *, bold: bool = False) -> Style:
        """Text in the hue of a bucket or role; without colour only the weight stays."""
        key = f"{hue}{bold:d}"
        if key not in self._styles:
            colour = self.palette[_hue(hue)] if self.colour else None
            self._styles[key] = Style(color=colour, bold=bold or None)
        return self._styles[key]

    def filled(self, bucket: str) -> Style:
        """Text on a field of the bucket's hue; without colour, plain."""
        key = f"on {bucket}"
        if key not in self._styles:
            self._styles[key] = (
                Style(color=self.palette["on_fill"], bgcolor=self.palette[_hue(bucket)])
                if self.colour
                else Style()
            )
        return self._styles[key]

    @property
    def cursor(self) -> Style:
        """Lies under the chosen row."""
        return Style(bgcolor=self.palette["cursor"]) if self.colour else Style(reverse=True)

    def boundary(self, below: str, above: str) -> Style:
        """The lower part of a cell in one hue, the rest in another."""
        key = f"{below}/{above}"
        if key not in self._styles:
            colours = self.palette[_hue(below)], self.palette[_hue(above)]
            self._styles[key] = Style(color=colours[0], bgcolor=colours[1])
        return self._styles[key]

    def fill(self, bucket: str) -> str:
        """The character that fills a bar where colour is not to carry the meaning."""
        mark = MARKS[bucket]
        return mark.ascii_fill if self.ascii else mark.fill

    def keys(self, names: str) -> str:
        """Names of keys; in ASCII arrows are words, as `<` and `>` are keys of their own."""
        if not self.ascii:
            return names
        for arrow, word in _ARROWS.items():
            names = names.replace(arrow, word)
        return names

    def plain(self, text: str) -> str:
        """`text` with nothing beyond ASCII in it, when that is asked for."""
        return to_ascii(text) if self.ascii else text


_ARROWS = {
    "↑↓": "up/down", "←→": "left/right", "↑ ↓": "up down", "← →": "left right",
}  # fmt: skip


def _hue(name: str) -> str:
    mark = MARKS.get(name)
    return mark.hue if mark else name


def letter(bucket: str) -> str:
    return MARKS[bucket].letter


def to_ascii(text: str) -> str:
    """`text` in ASCII, a cell for a cell where the glyph is known; `?` for what is not."""
    if text.isascii():
        return text
    return text.translate(ASCII_FOR).encode("ascii", "replace").decode("ascii")
