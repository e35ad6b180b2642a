"""All ranks of a job, a row each, the odd one on top: who waits for whom."""

from typing import Any, ClassVar

from rich.text import Text
from textual.binding import BindingType

from brrrtop.model.snapshot import Snapshot
from brrrtop.text import ranks as words
from brrrtop.tui.keys import key
from brrrtop.tui.renderables.line import hanging, paragraph
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.table import TableView
from brrrtop.tui.widgets.verdict import run_bar
from brrrtop.views import tables
from brrrtop.views.table import Table
from brrrtop.views.text import job_facts

LANES = 16
"""Ranks whose time is drawn, the odd one first."""
NONE = "One rank by itself. Name the files of all ranks, or attach to the launcher of the job."


class RankTable(TableView):
    BINDINGS: ClassVar[list[BindingType]] = [
        key("enter", "open", "open this rank"),
        ("pageup", "choose(-10)"),
        ("pagedown", "choose(10)"),
    ]
    topic = "ranks of the job, the odd one first"
    identity = "key"

    def table(self, snapshot: Snapshot) -> Table:
        return tables.ranks(snapshot.job)

    def nothing(self, snapshot: Snapshot, width: int) -> list[Text]:
        return paragraph(NONE, width, self.palette.style("muted"))

    def above(self, snapshot: Snapshot, width: int) -> list[Text]:
        job, palette = snapshot.job, self.palette
        assert job is not None
        waited = job.waited_for
        hue, message = "text", words.sentence(job)
        shown = message
        if waited is not None and waited.is_slow:
            hue, shown = "alarm", words.lateness(waited)  # the headline says why
        lines = paragraph(shown[0].upper() + shown[1:], width, palette.style(hue, bold=True))
        known = [*job_facts(job), *(note for note in job.notes if note != message)]
        return [*lines, *paragraph(" · ".join(known), width, palette.style("muted")), Text()]

    def below(self, snapshot: Snapshot, row: Any, width: int) -> list[Text]:
        """What the figures mean, what the ranks meet in, and what to try for the slow one."""
        job, palette = snapshot.job, self.palette
        assert job is not None
        muted, plain = palette.style("muted"), palette.style("text")
        lines = [
            run_bar(words.name(one), one.estimate.account, palette, width)
            for one in job.ranks[:LANES]
            if one.estimate is not None
        ]
        lines += [Text(), *paragraph(" ".join(tables.ranks(job).notes), width, muted)]
        meetings = tables.meetings(job)
        if meetings.rows:
            lines += [Text(), *table_lines(meetings, palette, width, most=meetings.most)]
        for one in job.advisories:
            lines.append(Text())
            for word, message in (("try", one.suggests), ("no use", one.waste)):
                lines += hanging(f"  {word:<8}", message or "", width, muted, plain)
        return lines

    def action_open(self) -> None:
        if self.rows:
            self.app.action_show_rank(self.rows[self.at].key)
            self.app.action_main()
