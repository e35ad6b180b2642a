"""What all panes share: a snapshot in, lines out, and only lines that changed are drawn again. Those that are
longer than the screen: keys and wheel move through them, or choose a row.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.events import Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import rule, stacked
from brrrtop.tui.themed import key

if TYPE_CHECKING:
    from brrrtop.tui.app import BrrrtopApp
    from brrrtop.tui.themed import ThemedApp

_CONSOLE = Console(color_system="truecolor", force_terminal=True, legacy_windows=False)
"""Only turns texts into segments; prints nothing."""


def changed(old: Sequence[Text], new: Sequence[Text]) -> list[int]:
    shared = min(len(old), len(new))
    differing = [y for y in range(shared) if old[y] != new[y]]
    return differing + list(range(shared, max(len(old), len(new))))


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as first and count of those that follow each other: regions cost, not lines."""
    begun: list[tuple[int, int]] = []
    for number in numbers:
        if begun and sum(begun[-1]) == number:
            begun[-1] = (begun[-1][0], begun[-1][1] + 1)
        else:
            begun.append((number, 1))
    return begun


class LineWidget(Widget):
    """A widget of lines; those that are the same as before cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Text] = []
        self._base = Style.null()
        """What the lines are drawn on, while they are."""

    @property
    def palette(self) -> Palette:
        return cast("ThemedApp[object]", self.app).palette

    def redraw(self) -> None:
        raise NotImplementedError

    def put(self, lines: list[Text]) -> None:
        lines = stacked(lines, self.content_size.width)
        for y, count in runs(changed(self._lines, lines)):
            self.refresh(Region(0, y, self.size.width, count))
        self._lines = lines

    def on_resize(self, _event: Resize) -> None:
        self.redraw()

    def on_focus(self) -> None:
        self.call_after_refresh(self.redraw)  # once `has_focus` says so

    def on_blur(self) -> None:
        self.call_after_refresh(self.redraw)

    def render_lines(self, crop: Region) -> list[Strip]:
        self._base = self.rich_style  # looked up in all ancestors
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        width, base = self.content_size.width, self._base
        if y >= len(self._lines):
            return Strip.blank(width, base)
        pieces = Segment.apply_style(self._lines[y].render(_CONSOLE, end=""), base)
        return Strip(Segment.simplify(pieces)).adjust_cell_length(width, base)


class Pane(LineWidget):
    """Draws lines from the newest snapshot. Subclasses say how in `draw`."""

    app: BrrrtopApp

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._drawn_from: object = None
        """`inputs` of what is drawn; None: draw in any case."""

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def on_mount(self) -> None:
        self.show(self.app.snapshot)

    def show(self, snapshot: Snapshot) -> None:
        """Takes the snapshot over; redraws what that changes."""
        self._snapshot = snapshot
        inputs = self.inputs(snapshot)
        if inputs is None or inputs != self._drawn_from:
            self.redraw()

    def inputs(self, snapshot: Snapshot) -> object:
        """All that `draw` uses of a snapshot, to be compared; None: it may be anything."""
        return None

    def redraw(self) -> None:
        self._drawn_from = None
        if self._snapshot is None or not self.display:
            return
        self._drawn_from = self.inputs(self._snapshot)
        width, height = self.content_size
        self.put(self.draw(self._snapshot, width, height)[:height] if width and height else [])

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        """The lines for this many cells; longer ones are cut.

        Pure: the same snapshot and size give the same lines.
        """
        raise NotImplementedError


class Fitted(Pane):
    """A pane as high as what it has to say, at most `most` lines."""

    most = 2

    def redraw(self) -> None:
        width, height = self.content_size
        if self._snapshot is None or not self.display or not width:
            super().redraw()
            return
        lines = self.draw(self._snapshot, width, self.most)
        wanted = min(self.most, max(1, len(lines)))
        if self.styles.height is None or self.styles.height.value != wanted:
            self.styles.height = wanted
        if height == wanted:
            self._drawn_from = self.inputs(self._snapshot)
            self.put(lines[:height])
        else:
            super().redraw()


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
