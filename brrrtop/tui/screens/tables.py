"""Ops, modules, stalls, copies, ranges and memory of the window: the tables of the report."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.parts import why_unjudged
from brrrtop.tui.renderables.line import clipped, wrapped
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.views import tables

NONE = (
    "Nothing to show: neither ops nor ranges nor memory were recorded here. Live, o records the ops of "
    "one step; a trace of torch.profiler has them, with modules where it was asked for (with_modules)."
)
MORE = "All rows: brrrtop analyze FILE --json, or --export csv"


class Tables(Scrolled):
    topic = "ops, modules and memory"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted, heading = self.palette.style("muted"), self.palette.style("compute", bold=True)
        if snapshot.estimate is None:
            return [Text.styled(one, muted) for one in wrapped(why_unjudged(snapshot), width)]
        window_ns = snapshot.estimate.account.duration_ns
        rows = list(tables.lines(snapshot.tables, window_ns, tables.ALL_OF_IT))
        if not rows:
            return [Text.styled(one, muted) for one in wrapped(NONE, width)]
        lines: list[Text] = []
        for row in rows[1:]:
            if not row.startswith(" ") and len(row) > width:  # a sentence
                lines += [Text.styled(one, heading) for one in wrapped(row, width)]
            else:
                style = self.palette.style("text") if row.startswith(" ") else heading
                lines.append(clipped(Text.styled(row, style), width))
        return [*lines, Text(), *(Text.styled(one, muted) for one in wrapped(MORE, width))]


class TablesView(SubView):
    def body(self) -> Tables:
        return Tables()
