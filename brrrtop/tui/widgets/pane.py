"""What all panes share: a snapshot in, lines out, and only lines that changed are drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.events import Resize
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import stacked

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
