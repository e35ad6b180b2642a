"""Asks where to write the recording, a picture of the screen or the report: by the name's end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from brrrtop.tui.widgets.pane import Shown


class SaveDialog(ModalScreen[str | None]):
    """Gives back a path, or None when it was left with Esc."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, kinds: Mapping[str, str]) -> None:
        """`kinds`: what can be written, by the end of the name; the first one is offered."""
        super().__init__()
        self._kinds = kinds

    def compose(self) -> ComposeResult:
        now = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
        with Vertical(id="dialog"):
            yield Label("Save what was seen so far to (Enter saves, Esc leaves):")
            yield Input(f"brrrtop-{now}{next(iter(self._kinds))}", id="path")
            for ending, what in self._kinds.items():
                yield Label(f"{ending:<6} {what}", classes="kind")

    def on_mount(self) -> None:
        self.set_class(not cast("Shown", self.app).palette.colour, "-colourless")
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip() or None)

    def action_leave(self) -> None:
        self.dismiss(None)
