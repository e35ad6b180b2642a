"""The loader on the main screen, while it is what the GPU waits for."""

from __future__ import annotations

from rich.text import Text
from textual.events import Click
from textual.message import Message

from brrrtop.model.snapshot import Snapshot
from brrrtop.model.vocabulary import Metric
from brrrtop.text import loader
from brrrtop.tui.renderables.line import rule
from brrrtop.tui.renderables.loader_lines import short
from brrrtop.tui.widgets.pane import Fitted

OF_WORKERS = (
    Metric.LOADER_WORKERS,
    Metric.LOADER_CPU_SHARE,
    Metric.LOADER_BUSY_SHARE,
    Metric.LOADER_DISK_SHARE,
)
ROOM = ((60, 12), (50, 8), (41, 7), (40, 6), (0, 4))
"""Height of the screen from which it takes that many lines at most."""


class Loader(Fitted):
    class Opened(Message):
        """All of it is wanted."""

    def redraw(self) -> None:
        self.most = next(most for height, most in ROOM if self.app.size.height >= height)
        super().redraw()

    def inputs(self, snapshot: Snapshot) -> object:
        workers = [snapshot.gauges.get(metric) for metric in OF_WORKERS]
        return (snapshot.tables.loaders, snapshot.whatif, workers)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        if not snapshot.tables.loaders:
            return []
        title = f"loader: {loader.kind(snapshot.tables.loaders[0])}"
        head = rule(title, "L: more", self.palette, width)
        return [head, *short(snapshot, self.palette, width, height - 1)]

    def on_click(self, _event: Click) -> None:
        self.post_message(self.Opened())
