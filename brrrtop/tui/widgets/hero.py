"""The verdict in plain words, and what it has cost so far."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text.hero import cost, hero
from brrrtop.tui.renderables.line import stacked, wrapped
from brrrtop.tui.widgets.pane import Fitted


class Hero(Fitted):
    """Takes no room while nothing is judged."""

    def show(self, snapshot: Snapshot) -> None:
        self.display = bool(hero(snapshot))
        super().show(snapshot)

    def inputs(self, snapshot: Snapshot) -> object:
        return (hero(snapshot), snapshot.since_attach)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        """The sentence first; the cost where lines are left, shorter where it would be cut."""
        says = wrapped(hero(snapshot), max(10, width))
        bold, muted = self.palette.style("text", bold=True), self.palette.style("muted")
        lines = [Text.styled(line, bold) for line in says[:height]]
        spent = cost(snapshot)
        if spent and len(lines) < height:
            if len(spent) > width:
                spent = (
                    spent.partition(", ")[0] + ", " + spent.partition(", ")[2].partition(" (")[0]
                )
            lines.append(Text.styled(spent, muted))
        return stacked(lines, width)
