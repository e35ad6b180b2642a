"""The split over time."""

from __future__ import annotations

from rich.text import Text

from brrrtop import units
from brrrtop.model import HistoryPoint, Snapshot
from brrrtop.tui.look import Look
from brrrtop.tui.renderables.history import columns, stacked_area
from brrrtop.tui.renderables.line import clipped, stacked
from brrrtop.tui.widgets.pane import Pane

AXIS_FROM = 4
"""Height from which a line is spent on the time axis."""


class HistoryGraph(Pane):
    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        history = snapshot.history
        if not history:
            return [clipped(Text.styled("no history yet", self.look.style("muted")), width)]
        axis = height >= AXIS_FROM
        lines = stacked_area(history, self.look, width, height - axis)
        if axis:
            lines.append(time_axis(history, self.look, width))
        return stacked(lines, width)


def time_axis(history: tuple[HistoryPoint, ...], look: Look, width: int) -> Text:
    """How long ago the left edge of the graph is."""
    shown = columns(history, width)
    ago = units.duration(shown[-1].t_ns - shown[0].t_ns)
    left = f"{ago} ago".rjust(width - len(shown) + len(ago) + 4)
    return Text.styled(left + "now".rjust(width - len(left)), look.style("muted"))
