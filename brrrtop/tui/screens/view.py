"""What every screen does: hand the newest snapshot to its panes, and give way when too small."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.screen import Screen

from brrrtop.model import Snapshot
from brrrtop.tui.look import REGIME_WORDS
from brrrtop.tui.widgets.pane import Pane

LEAST_WIDTH, LEAST_HEIGHT = 40, 10


class TooSmall(Pane):
    """Takes the place of everything else on a terminal below 40×10."""

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        lines = [f"too small: {LEAST_WIDTH}x{LEAST_HEIGHT} needed"]
        if snapshot.estimate is not None:
            lines.insert(0, REGIME_WORDS[snapshot.estimate.regime])
        return [Text(line[:width]) for line in lines]


class View(Screen[None]):
    """A screen over the newest snapshot."""

    HORIZONTAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [
        (0, "-tiny-width"),
        (LEAST_WIDTH, "-narrow"),
        (100, "-wide"),
        (160, "-huge"),
    ]
    VERTICAL_BREAKPOINTS: ClassVar[list[tuple[int, str]] | None] = [
        (0, "-tiny-height"),
        (LEAST_HEIGHT, "-low"),
        (20, "-short"),
        (34, "-tall"),
        (50, "-grand"),
    ]

    def show(self, snapshot: Snapshot) -> None:
        for pane in self.query(Pane):
            pane.show(snapshot)

    def redraw(self) -> None:
        """Draws everything anew, after a change of colours."""
        for pane in self.query(Pane):
            pane.redraw()
        self.refresh(repaint=True)


class SubView(View):
    """A view opened from the main one; Esc leads back."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.main", "back", show=False),
    ]
