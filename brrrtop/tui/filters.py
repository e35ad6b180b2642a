"""What every line goes through last, on its way to the terminal: nothing to obey, colours, glyphs."""

from __future__ import annotations

from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from brrrtop.text.printable import printable
from brrrtop.tui.palette import to_ascii


@lru_cache(1024)
def _weight_only(style: Style) -> Style:
    return Style(
        bold=style.bold,
        reverse=style.reverse,
        underline=style.underline,
        italic=style.italic,
        meta=style.meta or None,
    )


class Colourless(LineFilter):
    """Keeps bold, underline and reverse, and drops every colour, the background's too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, _weight_only(style) if style else style, control)
            for text, style, control in segments
        ]


class Printable(LineFilter):
    """Lets nothing through that a terminal would obey. Text is cleaned where it enters too."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [one if one.control else _printable(one) for one in segments]


def _printable(segment: Segment) -> Segment:
    """The segment, as wide as before: what has no width goes, what is not shown is a `?`."""
    text = printable(segment.text)
    if text == segment.text:
        return segment
    shown = (printable(sign).ljust(cell_len(sign))[: cell_len(sign)] for sign in segment.text)
    return Segment("".join(shown), segment.style, segment.control)


class Asciified(LineFilter):
    """Replaces every glyph beyond ASCII by one or two of the same width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [segment if segment.text.isascii() else _to_ascii(segment) for segment in segments]


def _to_ascii(segment: Segment) -> Segment:
    text = "".join(
        character if character.isascii() else to_ascii(character).ljust(cell_len(character), "?")
        for character in segment.text
    )
    return Segment(text, segment.style, segment.control)
