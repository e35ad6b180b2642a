"""The split over time."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import HistoryPoint, Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.history import columns, stacked_area
from brrrtop.tui.renderables.line import clipped, sided, stacked
from brrrtop.tui.widgets.pane import Pane

AXIS_FROM = 4
"""Height from which a line is spent on the time."""


class HistoryGraph(Pane):
    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        history = snapshot.history
        if not history:
            return [clipped(Text.styled("no history yet", self.palette.style("muted")), width)]
        axis = height >= AXIS_FROM
        lines = [time_axis(history, self.palette, width)] if axis else []
        return stacked(lines + stacked_area(history, self.palette, width, height - axis), width)


def time_axis(history: tuple[HistoryPoint, ...], palette: Palette, width: int) -> Text:
    """How long ago the left edge of the graph is, and what its layers are."""
    shown = columns(history, width)
    ago_ns = shown[-1].t_ns - shown[0].t_ns
    text = Text.styled(f"{units.duration(ago_ns)} ago" if ago_ns else "", palette.style("muted"))
    return sided(text, Text.styled("split over time, now", palette.style("muted")), width)
