"""Panes that are longer than the screen: keys and wheel move through them, or choose a row."""

from collections.abc import Hashable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.keys import key
from brrrtop.tui.renderables.line import rule
from brrrtop.tui.widgets.pane import LineWidget, Pane

_MOVE = "move in a list"
_HITS = "the next and the previous place of what was searched for"


class Scrolled(Pane, can_focus=True):
    """Shows as many of `content`'s lines as fit, under a rule that says which."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("up,k", "scroll_by(-1)"),
        ("down,j,enter", "scroll_by(1)"),
        ("pageup", "scroll_pages(-1)"),
        ("pagedown", "scroll_pages(1)"),
        ("home,g", "scroll_by(-1000000)"),
        ("end,G", "scroll_by(1000000)"),
        key("N", "next_hit(1)", "", _HITS),
        key("P", "next_hit(-1)", "", _HITS),
    ]
    topic = ""

    def __init__(self) -> None:
        super().__init__()
        self._top = 0
        self.wanted = ""
        """Words that are searched for; empty: none."""
        self._hits: list[int] = []
        self._hit = 0
        self._go = False
        """The next drawing scrolls to the hit."""

    def search(self, words: str) -> None:
        """Marks the lines that have these words, and scrolls to the first from here on."""
        self.wanted, self._hit, self._go = words, 0, True
        self.redraw()

    def action_next_hit(self, by: int) -> None:
        if self._hits:
            self._hit = (self._hit + by) % len(self._hits)
            self._go = True
            self.redraw()

    def _marked(self, lines: list[Text], room: int) -> list[Text]:
        if not self.wanted:
            self._hits = []
            return lines
        words = self.wanted.lower()
        self._hits = [y for y, line in enumerate(lines) if words in line.plain.lower()]
        self._hit = min(self._hit, max(0, len(self._hits) - 1))
        if self._go and self._hits:
            self._top = max(0, min(self._hits[self._hit] - room // 3, len(lines) - room))
        self._go = False
        marked = list(lines)
        for y in self._hits:
            marked[y] = lines[y].copy()
            style = "reverse bold" if y == self._hits[self._hit] else "reverse"
            begin = marked[y].plain.lower().find(words)
            marked[y].stylize(style, begin, begin + len(words))
        return marked

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        raise NotImplementedError

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        lines = self.content(snapshot, width - 2)
        room = max(1, height - 1)
        self._top = max(0, min(self._top, len(lines) - room))
        lines = self._marked(lines, room)
        shown = lines[self._top : self._top + room]
        note = ""
        if len(lines) > room:
            note = f"{self._top + 1}–{self._top + len(shown)} of {len(lines)}, "
            note += f"{self.palette.keys('↑↓')} to read on"
        if self.wanted:
            count = len(self._hits)
            which = f"{self._hit + 1} of {count}" if count else "nowhere"
            note = f'"{self.wanted}" {which}{", N: next" if count > 1 else ""}'
        head = rule(self.topic, note, self.palette, width)
        return [head, *(Text(" ").append_text(line) for line in shown)]

    def action_scroll_by(self, lines: int) -> None:
        self._top += lines
        self.redraw()

    def reach(self, first: int, last: int) -> None:
        """Scrolls so far that the lines from `first` to before `last` are seen."""
        room = max(1, self.content_size.height - 1)
        self._top = min(max(self._top, last - room), first)

    def action_scroll_pages(self, pages: int) -> None:
        self.action_scroll_by(pages * max(1, self.content_size.height - 2))

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        self.action_scroll_by(3)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.action_scroll_by(-3)


class Chooser(LineWidget, can_focus=True):
    """A list of which one row is chosen: by what it is, as rows come, go and change places."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("down,j", "choose(1)", "choose", _MOVE, sign="↑↓"),
        key("up,k", "choose(-1)", "", _MOVE),
        key("home,g", "choose(-1000000)", "", _MOVE),
        key("end,G", "choose(1000000)", "", _MOVE),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._chosen: Hashable = None

    def choices(self) -> Sequence[Hashable]:
        raise NotImplementedError

    @property
    def at(self) -> int:
        rows = self.choices()
        return rows.index(self._chosen) if self._chosen in rows else 0

    def action_choose(self, by: int) -> None:
        self.choose(self.at + by)

    def choose(self, place: int) -> None:
        """This row, or the one at the end that lies nearer; scrolled so far that it is seen."""
        rows = self.choices()
        if rows:
            place = min(max(place, 0), len(rows) - 1)
            self._chosen = rows[place]
            self.reveal(place)
            self.redraw()

    def reveal(self, place: int) -> None:
        """Scrolls so far that the row is seen; nothing where all of them are."""
