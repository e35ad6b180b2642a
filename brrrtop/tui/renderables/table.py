"""A table of `views.table` on the screen, and the small pictures in its cells."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.text import Text

from brrrtop.text import units
from brrrtop.tui.palette import MARKS, Palette
from brrrtop.tui.renderables.line import fitted, meter, under_cursor
from brrrtop.views.table import Column, Table

LEAD = 2
"""Cells for the mark of the chosen row."""
ZERO, RANGE, MIDDLE, BOTH = "│", "━", "●", "┼"


def table_lines(
    table: Table, palette: Palette, width: int, at: int | None = None, most: int | None = None
) -> list[Text]:
    """Titles and rows; a table that rows are chosen in (`at`) has the chosen one marked."""
    return [
        header_line(table, palette, width),
        *row_lines(table, table.rows[:most], palette, width, at),
    ]


def header_line(
    table: Table,
    palette: Palette,
    width: int,
    key: str = "",
    reverse: bool = False,
    lead: int = LEAD,
) -> Text:
    """The titles; with `key` an arrow at the one that sorts."""
    text = Text(" " * lead, no_wrap=True)
    for column, cells in table.fitting(width - lead):
        title, sorts = column.title, bool(key) and column.key == key
        if sorts and cells > 1:
            apart = " " if palette.ascii and len(title) + 2 <= cells else ""
            title += apart + ("▼" if column.words == reverse else "▲")
        style = palette.style("text" if sorts else "muted", bold=sorts)
        left = column.words or bool(column.picture)
        text.append(" " * (text.cell_len > lead))
        text.append(fitted(title, cells) if left else title.rjust(cells), style)
    return text


def row_lines(
    table: Table,
    rows: Sequence[Any],
    palette: Palette,
    width: int,
    at: int | None = None,
    lead: int = LEAD,
) -> list[Text]:
    columns = table.fitting(width - lead)
    lines = []
    for place, row in enumerate(rows):
        mark = "▸" if place == at and lead else ""
        line = palette.text(mark.ljust(lead), "text", bold=True)
        instead = table.instead(row) if table.instead is not None else ""
        for column, cells in columns:
            line.append(" " * (line.cell_len > lead)).append_text(
                _cell(column, row, cells, palette)
            )
        if instead:
            line.truncate(lead + columns[0][1])
            line.append(" ").append(
                fitted(instead, max(1, width - line.cell_len)), palette.style("muted")
            )
        lines.append(under_cursor(line, palette, width) if place == at else line)
    return lines


def _cell(column: Column, row: Any, cells: int, palette: Palette) -> Text:
    hue = column.hue(row) if column.hue is not None else "text"
    if column.picture:
        value = column.value(row)
        return (
            Text(" " * cells)
            if value is None
            else PICTURES[column.picture](value, hue, palette, cells)
        )
    text = column.text(row, cells)
    if column.words:
        filled = cells == 1 and hue in MARKS
        return Text.styled(
            fitted(text, cells), palette.filled(hue) if filled else palette.style(hue)
        )
    if text == units.UNMEASURED:
        hue = "muted"
    return palette.text(
        text.rjust(cells), hue, bold=column.title == "share" or column.hue is not None
    )


def column_at(table: Table, x: int, width: int) -> str:
    edge = 0
    for column, cells in table.fitting(width):
        edge += cells + 1
        if x < edge:
            return column.key
    return ""


def range_bar(
    value: tuple[float, float, float, float, float], hue: str, palette: Palette, cells: int
) -> Text:
    """Low end, middle and high end, on a scale from the fourth to the fifth value."""
    low, middle, high, least, most = value
    per = (cells - 1) / ((most - least) or 1.0)

    def place(value: float) -> int:
        return min(cells - 1, max(0, round((value - least) * per)))

    signs = [" "] * cells
    signs[place(0.0)] = ZERO
    for at in range(place(low), place(high) + 1):
        signs[at] = RANGE if signs[at] == " " else BOTH
    signs[place(middle)] = MIDDLE
    bar = Text(no_wrap=True)
    for at, sign in enumerate(signs):
        style = palette.style("rule" if sign == ZERO else hue, bold=at == place(middle))
        bar.append(sign, style)
    return bar


def change_bar(value: tuple[float, float, float], _hue: str, palette: Palette, cells: int) -> Text:
    """Of before, after and the whole: what there is now, then what is gone (light) or came (a plus each)."""
    scale = cells / (value[2] or 1.0)
    before, after = (min(cells, round(one * scale)) for one in value[:2])
    bar = Text("█" * min(before, after), palette.style("text"), no_wrap=True)
    bar.append("░" * (before - after), palette.style("good"))
    bar.append("+" * (after - before), palette.style("alarm"))
    return bar.append(" " * (cells - bar.cell_len))


PICTURES: Mapping[str, Callable[[Any, str, Palette, int], Text]] = {
    "meter": lambda value, hue, palette, cells: meter(value, palette, cells, hue),
    "range": range_bar, "change": change_bar,
}  # fmt: skip
