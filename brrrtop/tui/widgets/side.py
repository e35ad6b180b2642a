"""What stands beside the advice where there is room: what if, the code, the log. Each as far as it fits."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.code_lines import code_lines
from brrrtop.tui.renderables.edit_bars import edit_bars
from brrrtop.tui.renderables.event_line import event_lines
from brrrtop.tui.renderables.line import rule, stacked
from brrrtop.tui.widgets.pane import Pane

EDITS = 5


class Side(Pane):
    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        sections = (
            ("what if, one step", "w: all", edit_bars(snapshot, palette, width, EDITS)),
            ("code while the GPU idles", "C: more", code_lines(snapshot, palette, width)),
            ("log", "l: all", log_lines(snapshot, palette, width)),
        )
        lines: list[Text] = []
        for title, note, body in sections:
            room = height - len(lines) - 1
            if body and room > 0:
                lines += [rule(title, note, palette, width), *body[:room]]
        return stacked(lines[:height], width)


def log_lines(snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    """Events, newest first."""
    return [
        line
        for event in reversed(snapshot.events)
        for line in event_lines(event, snapshot.now_ns, palette, width)
    ]
