"""A pane that is longer than the screen: keys and wheel move through it."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.renderables.line import rule
from brrrtop.tui.widgets.pane import Pane


class Scrolled(Pane, can_focus=True):
    """Shows as many of `content`'s lines as fit, under a rule that says which."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_by(-1)", show=False),
        Binding("down,j,enter", "scroll_by(1)", show=False),
        Binding("pageup", "scroll_pages(-1)", show=False),
        Binding("pagedown", "scroll_pages(1)", show=False),
        Binding("home,g", "scroll_by(-1000000)", show=False),
        Binding("end,G", "scroll_by(1000000)", show=False),
    ]
    topic = ""

    def __init__(self) -> None:
        super().__init__()
        self._top = 0

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        """All lines, however many."""
        raise NotImplementedError

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        lines = self.content(snapshot, width - 2)
        room = max(1, height - 1)
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        note = ""
        if len(lines) > room:
            note = f"{self._top + 1}–{self._top + len(shown)} of {len(lines)}, ↑↓ to read on"
        head = rule(self.topic, note, self.palette, width)
        return [head, *(Text(" ").append_text(line) for line in shown)]

    def action_scroll_by(self, lines: int) -> None:
        self._top += lines
        self.redraw()

    def action_scroll_pages(self, pages: int) -> None:
        self.action_scroll_by(pages * max(1, self.content_size.height - 2))

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        self.action_scroll_by(3)

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.action_scroll_by(-3)
