"""A screen of a table of which one row is chosen, with sentences above it and below."""

from collections.abc import Hashable, Sequence
from typing import Any

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.renderables.line import stacked
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.scrolled import Chooser, Scrolled
from brrrtop.views.table import Table


class TableView(Chooser, Scrolled):
    """Subclasses name the table, what tells its rows apart, and what stands around it."""

    identity = "name"
    """Attribute of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Sequence[Any] = ()
        self._first = 0

    def table(self, snapshot: Snapshot) -> Table:
        raise NotImplementedError

    def above(self, snapshot: Snapshot, width: int) -> list[Text]:
        return []

    def below(self, snapshot: Snapshot, row: Any, width: int) -> list[Text]:
        """What is known of the chosen row, and what the figures mean."""
        return []

    def nothing(self, snapshot: Snapshot, width: int) -> list[Text]:
        raise NotImplementedError

    def choices(self) -> Sequence[Hashable]:
        return [getattr(row, self.identity) for row in self.rows]

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        table = self.table(snapshot)
        self.rows = table.rows
        if not self.rows:
            return self.nothing(snapshot, width)
        above = self.above(snapshot, width)
        self._first = len(above) + 1
        lines = table_lines(table, self.palette, width, self.at)
        below = self.below(snapshot, self.rows[self.at], width)
        return stacked([*above, *lines, Text(), *below], width)

    def reveal(self, place: int) -> None:
        line = self._first + place if place else 0
        self.reach(line, line + 2)
