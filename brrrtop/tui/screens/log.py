"""The regime-shift log: what changed, and when."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.renderables.event_line import event_lines
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.scrolled import Scrolled


class Log(Scrolled):
    topic = "log, newest first"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        if not snapshot.events:
            return [Text.styled("Nothing has changed so far.", self.palette.style("muted"))]
        return [
            line
            for event in reversed(snapshot.events)
            for line in event_lines(event, snapshot.now_ns, self.palette, width)
        ]


class LogView(SubView):
    def body(self) -> Log:
        return Log()
