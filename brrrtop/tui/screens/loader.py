"""Every loader that the training loop waited for: waits, workers, where the loop stands, what it costs."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.parts import why_unjudged
from brrrtop.tui.renderables.line import wrapped
from brrrtop.tui.renderables.loader_lines import whole
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.scrolled import Scrolled

NONE = (
    "No wait for a loader was recorded. Waits are marked where the loop draws from a torch DataLoader "
    "while an agent is in the trainer, and in traces of torch.profiler that have its ranges."
)


class Loaders(Scrolled):
    topic = "loader"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        if snapshot.tables.loaders:
            return list(whole(snapshot, self.palette, width))
        words = why_unjudged(snapshot) if snapshot.estimate is None else NONE
        return [Text.styled(one, self.palette.style("muted")) for one in wrapped(words, width)]


class LoaderView(SubView):
    def body(self) -> Loaders:
        return Loaders()
