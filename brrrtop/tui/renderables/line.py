"""Fitting text into a number of cells; the small pieces that lines are made of, and bars of shares."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.style import Style
from rich.text import Text

from brrrtop.tui.palette import MARKS, Palette


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


Part = tuple[str, float]
"""A bucket of `palette.MARKS` and its share of the bar."""


def cells(shares: Sequence[float], width: int) -> list[int]:
    """Whole cells for each share: they add up to `width`, and what is there gets at least one.

    Shares are taken relative to their sum. With more parts than cells the largest win.
    """
    total = sum(shares)
    if width <= 0 or total <= 0:
        return [0] * len(shares)
    exact = [share / total * width for share in shares]
    counts = [max(1, int(value)) if value > 0 else 0 for value in exact]
    order = sorted(range(len(shares)), key=lambda i: exact[i] - counts[i])
    while sum(counts) > width:
        largest = max(range(len(counts)), key=lambda i: (counts[i] > 1, counts[i] - exact[i]))
        if counts[largest] <= 1:
            largest = min((i for i in range(len(counts)) if counts[i]), key=lambda i: exact[i])
        counts[largest] -= 1
    while sum(counts) < width:
        counts[order.pop()] += 1
    return counts


def bar(
    parts: Sequence[Part], palette: Palette, width: int, labels: Sequence[Sequence[str]]
) -> Text:
    """The parts side by side over `width` cells.

    Args:
        labels: For each part, longest first: the first that fits is written into it.
    """
    text = Text(no_wrap=True)
    counts = cells([share for _, share in parts], width)
    shown = [one for one in zip(parts, counts, labels, strict=True) if one[1]]
    for place, ((bucket, _), count, words) in enumerate(shown):
        # Neighbours of one hue need an edge between them.
        edge = place + 1 < len(shown) and _hue(shown[place + 1][0][0]) == _hue(bucket) and count > 1
        text.append(_segment(bucket, words, palette, count - edge), palette.filled(bucket))
        text.append("▕" * edge, palette.filled(bucket))
    if text.cell_len < width:
        text.append((". " if palette.ascii else "· ") * width, palette.style("rule"))
        text.truncate(width)
    return text


def _hue(bucket: str) -> str:
    return MARKS[bucket].hue


def _segment(bucket: str, labels: Sequence[str], palette: Palette, count: int) -> str:
    fill = " " if palette.colour else palette.fill(bucket)
    label = next((f" {one}" for one in labels if cell_len(one) < count), "")
    label += " " * bool(label and cell_len(label) < count)
    if not label and labels and cell_len(labels[-1]) <= count:
        label = labels[-1]
    return label + fill * (count - cell_len(label))


def meter(share: float | None, palette: Palette, width: int, hue: str = "text") -> Text:
    """One value of 0..1 as a bar of fixed width; nothing measured is an empty, dashed one."""
    if width <= 0:
        return Text()
    if share is None:
        return palette.text(("-" if palette.ascii else "╌") * width, "rule")
    full = "#" if palette.ascii else "━"
    rest = "." if palette.ascii else ("─" if palette.colour else "╌")
    filled = min(width, max(1 if share > 0 else 0, round(share * width)))
    text = palette.text(full * filled, hue)
    return text.append(rest * (width - filled), palette.style("rule"))
