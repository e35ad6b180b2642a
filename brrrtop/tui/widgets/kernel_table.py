"""The kernels of the window: sorted, filtered, with a cursor. Draws only what is in view."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType

from brrrtop.model.estimate import KernelRow, Side
from brrrtop.model.snapshot import Freshness, Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import hanging, rule
from brrrtop.tui.renderables.table import column_at, header_line, row_lines
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.pane import Chooser, Pane
from brrrtop.tui.widgets.verdict import fits_whole, why_nothing
from brrrtop.views import tables
from brrrtop.views.table import Table

SORTABLE = tuple(one.key for one in tables.kernels(None).columns if one.key)
SORTED_BY = {"side": "bound", "total": "time", "count": "calls"}
"""Columns that are not called by their keys."""
HEAD_LINES = 2
"""A rule that says what is shown, and the column titles."""


_ON_CPU = "  A trainer on the CPU has steps, waits for data and phases (i), and no kernels."

Key = tuple[str, Side]
"""A function may have a row on each side of the roof."""


def key_of(kernel: KernelRow) -> Key:
    return (kernel.name, kernel.side)


def why_none(snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    """In the place of the table, while nothing was judged: every reason in full that is not above."""
    lines = [rule("no kernels", "", palette, width)]
    ended, above = snapshot.freshness is Freshness.ENDED, why_nothing(snapshot)
    notes = [phrases.unjudged(snapshot)]
    notes += [one for one in snapshot.source.notes if not (ended and one in snapshot.source.waits)]
    if fits_whole(above, width):
        notes = [note for note in notes if note != above]
    for note in notes:
        bullet, muted = "* " if palette.ascii else "• ", palette.style("muted")
        lines += hanging(bullet, note, width - 2, muted, palette.style("text"))
    if not ended and snapshot.source.tier not in (None, "nvml"):
        lines.append(palette.text(_ON_CPU, "muted"))
    return lines


def ordered(table: Table, key: str, reverse: bool) -> list[KernelRow]:
    """The kernels in a column's usual order, or the other way round; what was not measured last."""
    chosen = next(one for one in table.columns if one.key == key)
    measured = [row for row in table.rows if chosen.value(row) is not None]
    unmeasured = [row for row in table.rows if chosen.value(row) is None]
    return sorted(measured, key=chosen.value, reverse=chosen.words == reverse) + unmeasured


def matching(kernels: Sequence[KernelRow], query: str) -> list[KernelRow]:
    words = query.casefold().split()
    return [
        kernel
        for kernel in kernels
        if all(w in f"{kernel.name} {kernel.family} {kernel.side}".casefold() for w in words)
    ]


class KernelTable(Chooser, Pane):
    """Keys move the cursor; Enter and two clicks open the kernel under it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "open", "kernel", "the chosen kernel in depth"),
        ("pageup", "page(-1)"),
        ("pagedown", "page(1)"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.sort_key = "total"
        self.reverse = False
        self.wanted = ""
        self.kernels: list[KernelRow] = []
        """As shown: filtered and sorted."""
        self._keys: list[Key] = []
        self._known = 0
        self._first = 0

    def choices(self) -> Sequence[Key]:
        return self._keys

    def sort_by(self, key: str, reverse: bool = False) -> None:
        self.sort_key, self.reverse = key, reverse
        self.redraw()

    def cycle_sort(self, by: int = 1) -> None:
        at = SORTABLE.index(self.sort_key)
        self.sort_by(SORTABLE[(at + by) % len(SORTABLE)])

    def filter(self, wanted: str) -> None:
        self.wanted = wanted
        self._first = 0
        self.redraw()

    def inputs(self, snapshot: Snapshot) -> object:
        seen = snapshot.estimate
        return (seen.kernels, seen.steps_covered) if seen is not None else snapshot

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        table = tables.kernels(snapshot.estimate)
        self._known = len(table.rows)
        self.kernels = matching(ordered(table, self.sort_key, self.reverse), self.wanted)
        self._keys = [key_of(kernel) for kernel in self.kernels]
        room = max(0, height - HEAD_LINES)
        self._first = max(0, min(self._first, len(self.kernels) - room))
        if room and self._chosen is not None:
            self._first = min(max(self._first, self.at - room + 1), self.at)
        if snapshot.estimate is None:
            return why_none(snapshot, self.palette, width)
        inside = self.kernels[self._first : self._first + room]
        title = "kernels, share of the GPU's work"
        if any(kernel.roof_share is not None for kernel in inside):
            title += f"; {units.share(tables.GOOD)} of peak is good"
        lines = [rule(title, self._note(room), self.palette, width)]
        lines.append(header_line(table, self.palette, width, self.sort_key, self.reverse, 0))
        at = self.at - self._first if self.has_focus else None
        lines += row_lines(table, inside, self.palette, width, at, 0)
        if not self.kernels:
            lines.append(self.palette.text(self._nothing(), "muted"))
        return lines

    def _note(self, room: int) -> str:
        count = len(self.kernels)
        note = f"by {SORTED_BY.get(self.sort_key, self.sort_key)}"
        if self.wanted:
            note = f'"{self.wanted}" {count} of {self._known}, {note}'
        if count > room > 0:
            note = f"{self._first + 1}–{self._first + room} of {count}, {note}"
        return note

    def _nothing(self) -> str:
        if self.wanted and self._known:
            return f'No kernel matches "{self.wanted}"; Esc clears the filter.'
        return "No kernels seen."

    def reveal(self, place: int) -> None:
        if not place:
            self._chosen, self._first = None, 0

    def action_page(self, by: int) -> None:
        self.action_choose(by * max(1, self.content_size.height - HEAD_LINES - 1))

    def action_open(self) -> None:
        if self.kernels:
            self.app.open_kernel(self.kernels[self.at])

    def on_click(self, event: events.Click) -> None:
        if event.y == HEAD_LINES - 1:
            table = tables.kernels(self.snapshot.estimate if self.snapshot else None)
            if key := column_at(table, event.x, self.content_size.width):
                self.sort_by(key, key == self.sort_key and not self.reverse)
        elif event.y >= HEAD_LINES:
            self.choose(event.y - HEAD_LINES + self._first)
            if event.chain == 2:
                self.action_open()

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        self.action_choose(3)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.action_choose(-3)
