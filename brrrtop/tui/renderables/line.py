"""Fitting text into a number of cells, and the small pieces that lines are made of."""

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from brrrtop.tui.palette import Palette


def fitted(text: str, width: int) -> str:
    """`text` over exactly `width` cells, cut with an ellipsis or padded."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(set_cell_size(text, width - 1) + "…", width)


def clipped(text: Text, width: int) -> Text:
    """`text` over at most `width` cells, cut with an ellipsis."""
    if text.cell_len > width:
        text = text.copy()
        text.truncate(max(0, width), overflow="ellipsis")
    text.no_wrap = True
    return text


def styled(cells: Iterable[tuple[str, Style]]) -> Text:
    """One line of these signs; neighbours of one style are one piece, as each piece costs."""
    text = Text(no_wrap=True)
    signs: list[str] = []
    last: Style | None = None
    for sign, style in cells:
        if style is not last and last is not None:
            text.append("".join(signs), last)
            signs = []
        last = style
        signs.append(sign)
    return text if last is None else text.append("".join(signs), last)


def stacked(lines: Iterable[Text], width: int) -> list[Text]:
    """The lines, none wider than `width`."""
    return [clipped(line, width) for line in lines]


def sided(left: Text, right: Text, width: int) -> Text:
    """One line with `right` at its right edge; where both do not fit, `left` is cut."""
    room = width - right.cell_len - 1
    if room < 8:
        return clipped(left, width)
    text = clipped(left, room).copy()
    text.append(" " * (width - text.cell_len - right.cell_len))
    return text.append_text(right)


def joined(pieces: Iterable[Text], width: int, gap: str = "   ") -> Text:
    """As many whole pieces as fit on one line, most important first."""
    text = Text(no_wrap=True)
    for piece in pieces:
        spaced = len(gap) if text else 0
        if text.cell_len + spaced + piece.cell_len > width:
            continue
        text.append(gap if spaced else "")
        text.append_text(piece)
    return text


def rows(pieces: Iterable[Text], width: int, count: int, gap: str = "   ") -> list[Text]:
    """Pieces flowed over at most `count` lines; on the last one, those that still fit."""
    lines = [Text(no_wrap=True)]
    for piece in pieces:
        spaced = len(gap) if lines[-1] else 0
        if lines[-1].cell_len + spaced + piece.cell_len > width and lines[-1]:
            if len(lines) >= count:
                continue
            lines.append(Text(no_wrap=True))
            spaced = 0
        lines[-1].append(gap if spaced else "")
        lines[-1].append_text(piece)
    return lines


def paragraph(words: str, width: int, style: Style) -> list[Text]:
    """Words flowed over as many lines as they take."""
    return [Text.styled(line, style) for line in wrapped(words, width)]


def hanging(lead: str, words: str, width: int, lead_style: Style, style: Style) -> list[Text]:
    """Words flowed beside a label, below which the next lines are blank."""
    cells = cell_len(lead)
    lines = []
    for i, part in enumerate(wrapped(words, max(10, width - cells))):
        text = Text(no_wrap=True).append(" " * cells if i else lead, lead_style)
        lines.append(text.append(part, style))
    return lines


def facts(
    entries: Iterable[tuple[str, str]], cells: int, palette: Palette, width: int
) -> list[Text]:
    muted, style = palette.style("muted"), palette.style("text")
    return [
        line
        for label, words in entries
        for line in hanging(f"{label:>{cells}}  ", words, width, muted, style)
    ]


def pair(label: str, value: str, palette: Palette) -> Text:
    text = palette.text(f"{label} ", "muted")
    return text.append(value, palette.style("text"))


def under_cursor(line: Text, palette: Palette, width: int) -> Text:
    """The chosen row, marked up to the right edge; what has a ground of its own keeps it."""
    line.append(" " * max(0, width - line.cell_len))
    line.stylize_before(palette.cursor)
    return line


def rule(title: str, note: str, palette: Palette, width: int) -> Text:
    """`── title ───────────── note ──`: what begins here."""
    dash = "-" if palette.ascii else "─"
    text = Text(no_wrap=True)
    text.append(dash * 2 + " ", palette.style("rule"))
    text.append(title, palette.style("text", bold=True))
    text.append(" ")
    tail = f" {note} " if note else ""
    room = width - text.cell_len - cell_len(tail) - 2
    if room < 1:
        tail, room = "", max(0, width - text.cell_len - 2)
    text.append(dash * room, palette.style("rule"))
    text.append(tail, palette.style("muted"))
    text.append(dash * 2, palette.style("rule"))
    return clipped(text, width)


def wrapped(text: str, width: int) -> list[str]:
    """Words flowed over lines of at most `width` cells; longer words are broken."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        while cell_len(word) > width > 0:
            if line:
                lines.append(line)
                line = ""
            head = set_cell_size(word, width).rstrip() or word[:1]
            lines.append(head)
            word = word[len(head) :]
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, line] if line else lines
