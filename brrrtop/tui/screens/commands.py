"""All commands by name: type a part of one, Enter does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from brrrtop.tui.commands import Command
from brrrtop.tui.renderables.line import sided
from brrrtop.tui.screens.view import Dialog
from brrrtop.tui.widgets.scrolled import Chooser


def matching(commands: Sequence[Command], typed: str) -> list[Command]:
    """Commands that have all of the words, or parts of words; those that begin so first."""
    words = typed.lower().split()
    matches = [one for one in commands if all(word in one[0].lower() for word in words)]
    return sorted(matches, key=lambda one: not one[0].lower().startswith(typed.lower()))


class CommandList(Chooser, can_focus=False):
    """Shows what matches; one of them is chosen."""

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self._commands = commands
        self._typed = ""

    def choices(self) -> Sequence[Command]:
        return matching(self._commands, self._typed)

    def filter(self, typed: str) -> None:
        self._typed, self._chosen = typed, None
        self.redraw()

    def redraw(self) -> None:
        self.put(self._draw(self.content_size.width, self.content_size.height))

    def _draw(self, width: int, height: int) -> list[Text]:
        palette, shown, at = self.palette, self.choices(), self.at
        muted = palette.style("muted")
        if not shown:
            return [Text.styled("no command has these words", muted)]
        below = len(shown) > height
        height -= below
        first = max(0, min(at - height + 1, len(shown) - height))
        lines = []
        for place, (does, key, _) in enumerate(shown[first : first + height], first):
            text = palette.text("▸ " if place == at else "  ", "good", bold=True)
            text.append(does, palette.style("text", bold=place == at))
            lines.append(sided(text, Text.styled(key, muted), width))
        if below:
            dash = "-" if palette.ascii else "–"
            part = f"{first + 1}{dash}{first + height} of {len(shown)}"
            lines.append(Text.styled(f"  {part}, {palette.keys('↑↓')} or a word", muted))
        return lines


class CommandDialog(Dialog):
    """Gives back the action of the chosen command."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,ctrl+n", "move(1)", priority=True),
        Binding("up,ctrl+p", "move(-1)", priority=True),
    ]

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self.list = CommandList(commands)

    def compose(self) -> ComposeResult:
        with Vertical(id="commands"):
            yield Input(placeholder="a command, or a part of its name", id="command")
            yield self.list

    def on_input_changed(self, event: Input.Changed) -> None:
        self.list.filter(event.value)

    def on_input_submitted(self) -> None:
        shown = self.list.choices()
        self.dismiss(shown[self.list.at][2] if shown else None)

    def action_move(self, by: int) -> None:
        self.list.action_choose(by)
