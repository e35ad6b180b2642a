"""Screens that are only read: the log, the loader, the report's tables."""

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.tui.parts import why_unjudged
from brrrtop.tui.renderables.line import paragraph, stacked
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.loader import whole
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.tui.widgets.side import log_lines
from brrrtop.views import host_tables

NO_TABLES = (
    "Nothing to show: neither ops nor ranges nor memory were recorded here. Live, o records the ops of "
    "one step; a trace of torch.profiler has them, with modules where it was asked for (with_modules)."
)
MOST = 40
"""Rows of one table on the screen."""
MORE_ROWS = "All rows: brrrtop analyze FILE --json, or --export csv"
NO_LOADER = (
    "No wait for a loader was recorded. Waits are marked where the loop draws from a torch DataLoader "
    "while an agent is in the trainer, and in traces of torch.profiler that have its ranges."
)


class Log(Scrolled):
    topic = "log, newest first"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        lines = log_lines(snapshot.events, snapshot.now_ns, self.palette, width)
        return lines or paragraph("Nothing has changed so far.", width, muted)


class Loaders(Scrolled):
    topic = "loader"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        if snapshot.tables.loaders:
            return whole(snapshot, self.palette, width)
        words = why_unjudged(snapshot) if snapshot.estimate is None else NO_LOADER
        return paragraph(words, width, self.palette.style("muted"))


class Tables(Scrolled):
    topic = "ops, modules and memory"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        if snapshot.estimate is None:
            return paragraph(why_unjudged(snapshot), width, muted)
        lines: list[Text] = []
        for table in host_tables.of_host(snapshot.tables, snapshot.estimate.account.duration_ns):
            if table.rows:
                lines += [self.palette.text(table.title, "compute", bold=True)]
                lines += table_lines(table, self.palette, width, most=MOST)
                lines += [*paragraph(" ".join(table.notes), width, muted), Text()]
        if words := host_tables.queue_words(snapshot.tables):
            lines += [*paragraph(words, width, self.palette.style("text")), Text()]
        return stacked([*lines, *paragraph(MORE_ROWS if lines else NO_TABLES, width, muted)], width)
