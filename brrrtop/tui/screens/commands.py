"""All commands by name: type a part of one, Enter does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.commands import Command
from brrrtop.tui.renderables.line import sided
from brrrtop.tui.widgets.pane import Pane

if TYPE_CHECKING:
    from brrrtop.tui.app import BrrrtopApp


def matching(commands: Sequence[Command], typed: str) -> list[Command]:
    """Commands that have all of the words, or parts of words; those that begin so first."""
    words = typed.lower().split()
    matches = [one for one in commands if all(word in one[0].lower() for word in words)]
    return sorted(matches, key=lambda one: not one[0].lower().startswith(typed.lower()))


class CommandList(Pane):
    """Shows what matches; one of them is chosen."""

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self._commands = commands
        self._typed = ""
        self._at = 0

    @property
    def chosen(self) -> Command | None:
        shown = matching(self._commands, self._typed)
        return shown[min(self._at, len(shown) - 1)] if shown else None

    def filter(self, typed: str) -> None:
        self._typed, self._at = typed, 0
        self.redraw()

    def move(self, by: int) -> None:
        count = len(matching(self._commands, self._typed))
        self._at = min(max(self._at + by, 0), max(0, count - 1))
        self.redraw()

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette, shown = self.palette, matching(self._commands, self._typed)
        if not shown:
            return [Text.styled("no command has these words", palette.style("muted"))]
        below = len(shown) > height
        height -= below
        first = max(0, min(self._at - height + 1, len(shown) - height))
        lines = []
        for place, (does, key, _) in enumerate(shown[first : first + height], first):
            here = place == self._at
            text = Text.styled("▸ " if here else "  ", palette.style("good", bold=True))
            text.append(does, palette.style("text", bold=here))
            lines.append(sided(text, Text.styled(key, palette.style("muted")), width))
        if below:
            shown_of = (
                f"{first + 1}{'-' if palette.ascii else '–'}{first + height} of {len(shown)}, "
            )
            lines.append(
                Text.styled(f"  {shown_of}{palette.keys('↑↓')} or a word", palette.style("muted"))
            )
        return lines


class CommandDialog(ModalScreen[str | None]):
    """Gives back the action of the chosen command; None when it was left with Esc."""

    app: BrrrtopApp
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", show=False),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("up,ctrl+p", "move(-1)", show=False, priority=True),
    ]

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self._commands = commands

    def compose(self) -> ComposeResult:
        with Vertical(id="commands"):
            yield Input(placeholder="a command, or a part of its name", id="command")
            yield CommandList(self._commands)

    def on_mount(self) -> None:
        self.set_class(not self.app.palette.colour, "-colourless")
        self.query_one(Input).focus()

    @property
    def list(self) -> CommandList:
        return self.query_one(CommandList)

    def on_input_changed(self, event: Input.Changed) -> None:
        self.list.filter(event.value)

    def on_input_submitted(self) -> None:
        chosen = self.list.chosen
        self.dismiss(chosen[2] if chosen else None)

    def action_move(self, by: int) -> None:
        self.list.move(by)
