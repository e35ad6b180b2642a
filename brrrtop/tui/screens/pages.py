"""Screens that are only read: the log, the code while the GPU idles, the loader, the report's tables."""

from __future__ import annotations

from rich.text import Text

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import causes, units
from brrrtop.tui.palette import letter
from brrrtop.tui.parts import booked, why_unjudged
from brrrtop.tui.renderables.line import paragraph, stacked
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.screens.code import gutter
from brrrtop.tui.widgets.loader import whole
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.tui.widgets.side import code_lines, log_lines, no_samples
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
NAMED = " Waits that have a name of their own are below."


class Log(Scrolled):
    """What changed, and when."""

    topic = "log, newest first"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        lines = log_lines(snapshot.events, snapshot.now_ns, self.palette, width)
        return lines or paragraph("Nothing has changed so far.", width, muted)


class Loaders(Scrolled):
    """Every loader that the training loop waited for."""

    topic = "loader"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        if snapshot.tables.loaders:
            return whole(snapshot, self.palette, width)
        words = why_unjudged(snapshot) if snapshot.estimate is None else NO_LOADER
        return paragraph(words, width, self.palette.style("muted"))


class Tables(Scrolled):
    """Ops, modules, stalls, copies, ranges and memory of the window."""

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


class Code(Scrolled):
    """Where the training thread is while the GPU idles, and what the waits are called."""

    topic = "code: where the training thread is"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        palette = self.palette
        lines = gutter(snapshot, palette, width)
        if snapshot.estimate is None:
            return lines or paragraph(why_unjudged(snapshot), width, palette.style("muted"))
        if not lines:
            lines = code_lines(snapshot, palette, width) or paragraph(
                no_samples(snapshot, "No line stands out") + NAMED, width, palette.style("muted")
            )
            lines.append(Text())
        lines.append(palette.text("What the GPU waits for", "compute", bold=True))
        for part in booked(snapshot.estimate.account):
            if part.bucket.startswith("idle_"):
                named = palette.style(part.bucket, bold=True)
                text = Text.styled(letter(part.bucket), palette.filled(part.bucket))
                text.append(f" {units.share(part.share):>4}  ", palette.style("text", bold=True))
                text.append(f"{causes.name(part.bucket)}  ", named)
                lines.append(text.append(causes.meaning(part.bucket), palette.style("text")))
                if part.bucket == "idle_input" and (place := loader_line(snapshot)):
                    lines.append(palette.text(f"       {place}", "text"))
        places = (palette.text(f"       {one}", "text") for one in sync_lines(snapshot))
        return stacked([*lines, *places], width)


def loader_line(snapshot: Snapshot) -> str:
    """`72% of it at data.py:45, L: more`: where the loop makes its batches, or waits for them."""
    rows = [row for row in snapshot.tables.loaders if row.lines]
    if not rows:
        return ""
    first = rows[0].lines[0]
    return f"{units.share(first.count / rows[0].samples)} of it at {first.place}, L: more"


def sync_lines(snapshot: Snapshot) -> list[str]:
    """Lines that advice names as waiting for the GPU."""
    return [
        str(line)
        for advisory in (*snapshot.advisories, *snapshot.silenced)
        for line in advisory.evidence.get("lines") or ()
    ]
