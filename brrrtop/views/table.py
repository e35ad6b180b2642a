"""A table as the screen, the report in text and the page draw it: rows, and columns that say how."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from brrrtop.text import units

WIDTH = 80
"""Of a report in text."""
LEAST_NAME = 12
"""Cells of the column of names; figures give way to it, from the right."""
FULL = "█"


class Column(Struct, frozen=True):
    title: str
    width: int
    """In cells, without the space before it; 0: what is left, up to `most`."""
    value: Callable[[Any], Any]
    """What it shows and sorts by; None: not measured."""
    form: Callable[[Any], str] = str
    """Of a value that was measured."""
    words: bool = False
    """To the left, and from A to Z; figures are to the right, and the largest comes first."""
    from_width: int = 0
    """Width of the table from which there is room for it."""
    hue: Callable[[Any], str] | None = None
    """Colour of a row's cell: a bucket or role of the palette."""
    picture: str = ""
    """How the screen draws the value: `meter`, `range`, `change` (`tui.renderables.table`)."""
    key: str = ""
    """By which it is sorted; empty: never."""
    most: int = 200
    fit: Callable[[str, int], str] | None = None
    """Shortens what has no room; None: cut at the end."""

    def text(self, row: Any, cells: int) -> str:
        value = self.value(row)
        shown = units.UNMEASURED if value is None else self.form(value)
        return shown if self.fit is None else str(self.fit(shown, cells))


def attribute(name: str) -> Callable[[Any], Any]:
    return lambda row: getattr(row, name)


def name_column(title: str, name: str = "name", most: int = 60, **more: Any) -> Column:
    return Column(title, 0, attribute(name), words=True, most=most, **more)


def time_column(title: str, name: str, width: int = 9, **more: Any) -> Column:
    return Column(title, width, attribute(name), units.duration, **more)


def share_column(title: str, name: str, width: int = 6, **more: Any) -> Column:
    return Column(title, width, attribute(name), units.share, **more)


CALLS = Column("count", 7, attribute("count"), units.count, key="count")


class Table(Struct, frozen=True):
    """Rows of one kind, most telling first."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: Sequence[Any]
    notes: tuple[str, ...] = ()
    """What the figures mean."""
    most: int = 8
    """Rows that a report in text has."""
    below: Callable[[Any], Sequence[str]] | None = None
    """Sentences about a row, for a report in text."""
    instead: Callable[[Any], str] | None = None
    """What stands in place of a row's figures; empty: nothing does."""

    def fitting(self, width: int) -> list[tuple[Column, int]]:
        """The columns that there is room for, with their widths."""
        shown = [one for one in self.columns if width >= one.from_width]
        left = width - sum(one.width + 1 for one in shown) + 1
        while left < LEAST_NAME and len(shown) > 2 and any(not one.width for one in shown):
            dropped = next(one for one in reversed(shown) if one.width)
            shown.remove(dropped)
            left += dropped.width + 1
        return [(one, one.width or max(0, min(one.most, left))) for one in shown]


def text_lines(table: Table) -> Iterator[str]:
    """The table in 80 columns below an empty line; nothing where it has no rows."""
    shown = table.rows[: table.most]
    if not shown:
        return
    columns = [
        (one, cells)
        for one, cells in table.fitting(WIDTH - 2)
        if one.picture in ("", "meter") and cells
    ]
    yield ""
    heads = []
    for place, (one, cells) in enumerate(columns):
        title = one.title if one.width else table.title
        cells += 2 * (not place)  # the rows are indented
        heads.append(title.ljust(cells) if one.words else title.rjust(cells))
    yield " ".join(heads).rstrip()
    for row in shown:
        yield f"  {' '.join(_cell(one, row, cells) for one, cells in columns)}".rstrip()
        if table.instead is not None and (words := table.instead(row)):
            yield from wrap(words, "      ")
        for sentence in table.below(row) if table.below is not None else ():
            yield from wrap(sentence, "      ", "        ")
    if len(table.rows) > len(shown):
        yield f"  and {len(table.rows) - len(shown)} more"
    for note in table.notes:
        yield from wrap(note, "  ")


def _cell(column: Column, row: Any, cells: int) -> str:
    if column.picture:
        full: int = round(column.value(row) * cells)
        return (FULL * full).ljust(cells)
    text = column.text(row, cells)
    if not column.words:
        return text.rjust(cells)
    return (text if len(text) <= cells else f"{text[: cells - 1]}…").ljust(cells)


def wrap(text: str, lead: str, hang: str | None = None, width: int = WIDTH) -> list[str]:
    """`text` on lines of at most `width`: the first begins with `lead`, the others with `hang`, by default
    as many blanks."""
    return textwrap.wrap(
        "".join(sign if sign.isprintable() else " " for sign in text),
        width,
        initial_indent=lead,
        subsequent_indent=" " * len(lead) if hang is None else hang,
        break_on_hyphens=False,
    )
