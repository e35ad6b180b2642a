"""Screens of tables: ranks and edits, of which one row is chosen, and before and after."""

from collections.abc import Hashable, Sequence
from time import monotonic
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import BindingType

from brrrtop.model.advice import Comparison, Outcome, WhatIf
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import causes as words
from brrrtop.text import phrases, units
from brrrtop.tui.palette import MARKS, Palette
from brrrtop.tui.renderables.history import ghost_lap, race
from brrrtop.tui.renderables.line import facts, hanging, paragraph, rule, stacked
from brrrtop.tui.renderables.swim_lanes import drawn
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.pane import Chooser, Scrolled
from brrrtop.tui.widgets.time_spent import step_title
from brrrtop.tui.widgets.verdict import run_bar
from brrrtop.views import comparison as compare_text
from brrrtop.views import tables, whatif
from brrrtop.views.table import Table
from brrrtop.views.text import job_facts


class TableView(Chooser, Scrolled):
    """Subclasses name the table, what tells its rows apart, and what stands around it."""

    identity = "name"
    """Attribute of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: Sequence[Any] = ()
        self._first = 0

    def table(self, snapshot: Snapshot) -> Table:
        raise NotImplementedError

    def above(self, snapshot: Snapshot, width: int) -> list[Text]:
        return []

    def below(self, snapshot: Snapshot, row: Any, width: int) -> list[Text]:
        """What is known of the chosen row, and what the figures mean."""
        return []

    def nothing(self, snapshot: Snapshot, width: int) -> list[Text]:
        raise NotImplementedError

    def choices(self) -> Sequence[Hashable]:
        return [getattr(row, self.identity) for row in self.rows]

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        table = self.table(snapshot)
        self.rows = table.rows
        if not self.rows:
            return self.nothing(snapshot, width)
        above = self.above(snapshot, width)
        self._first = len(above) + 1
        lines = table_lines(table, self.palette, width, self.at)
        below = self.below(snapshot, self.rows[self.at], width)
        return stacked([*above, *lines, Text(), *below], width)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        """In lines that are left: a traced step as it is."""
        lines, picture = super().draw(snapshot, width, height), snapshot.picture
        room = height - len(lines) - 2
        if picture is None or not self.rows or room < PICTURE_FROM:
            return lines
        title = self.whose(snapshot) + step_title(picture, snapshot)
        head = rule(title, "p: larger", self.palette, width)
        return [*lines, Text(), head, *drawn(picture, picture.span, self.palette, width, room)]

    def whose(self, snapshot: Snapshot) -> str:
        """Whose step that is, where there are several."""
        return ""

    def reveal(self, place: int) -> None:
        line = self._first + place if place else 0
        self.reach(line, line + 2)


LANES = 16
"""Ranks whose time is drawn, the odd one first."""
NO_RANKS = "One rank by itself. Name the files of all ranks, or attach to the launcher of the job."


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
        return paragraph(NO_RANKS, width, self.palette.style("muted"))

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
            run_bar(words.rank_name(one), one.estimate.account, palette, width)
            for one in job.ranks[:LANES]
            if one.estimate is not None
        ]
        for one in job.advisories:
            lines.append(Text())
            for word, message in (("try", one.suggests), ("no use", one.waste)):
                lines += hanging(f"{word:<8}", message or "", width, muted, plain)
        meetings = tables.meetings(job)
        if meetings.rows:
            lines += [Text(), *table_lines(meetings, palette, width, most=meetings.most)]
        return [*lines, Text(), *paragraph(" ".join(tables.ranks(job).notes), width, muted)]

    def whose(self, snapshot: Snapshot) -> str:
        row = snapshot.job.row(snapshot.job.shown) if snapshot.job is not None else None
        return f"{words.rank_name(row)}: " if row is not None else ""

    def action_open(self) -> None:
        if self.rows:
            self.app.action_show_rank(self.rows[self.at].key)
            self.app.action_main()


LABEL = 6
FRAME_S = 0.5
"""Between two pictures of the ghost lap."""
PICTURE_FROM = 7
"""Lines that are left from which a step is drawn in them."""
NO_EDITS = (
    "No edit was simulated: that needs whole steps, judged after warming up, of a GPU that this "
    "trainer has for itself."
)


class EditTable(TableView):
    """One edit is chosen: below the table is what a step is made of with it and without."""

    topic = "what if: each edit simulated, in the order of the advice"
    identity = "edit"

    def __init__(self) -> None:
        super().__init__()
        self._began: float | None = None
        """The ghost lap; None: it stands still."""

    def on_mount(self) -> None:
        super().on_mount()
        if not self.app.is_headless:
            self._began = monotonic()
            self.set_interval(FRAME_S, self.redraw)

    def table(self, snapshot: Snapshot) -> Table:
        return tables.edits(snapshot)

    def nothing(self, snapshot: Snapshot, width: int) -> list[Text]:
        return paragraph(NO_EDITS, width, self.palette.style("muted"))

    def below(self, snapshot: Snapshot, row: Any, width: int) -> list[Text]:
        palette = self.palette
        lines = table_lines(tables.edit_parts(row, snapshot.run), palette, width)
        known = [("line", row.line), ("advice", _advice(row))]
        if row.risk:
            known.append(("risk", phrases.RISKS[row.risk]))
        best, after = whatif.following(snapshot)
        if row.edit == best:
            known.append(("then", f"after {best}: {after}"))
        terms = paragraph(whatif.terms(self.rows), width, palette.style("muted"))
        one = race(snapshot, row)
        passed_s = 0.0 if self._began is None else monotonic() - self._began
        laps = [*ghost_lap(one, palette, width, passed_s), Text()] if one is not None else []
        terms = [*laps, *terms]
        return [*lines, Text(), *facts(known, LABEL, palette, width), Text(), *terms]


def _advice(row: WhatIf) -> str:
    if row.advisory is not None:
        return f"{row.advisory}; a shows it"
    return "none: it is not worth trying now" if row.saves < whatif.WORTH_A_LINE else "none"


class BeforeAfter(Scrolled):
    topic = "before and after"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        base, comparison, palette = snapshot.baseline, snapshot.comparison, self.palette
        text = palette.style("text")
        if base is None:
            return [
                line for one in compare_text.NO_BASELINE for line in paragraph(one, width, text)
            ]
        if comparison is None:
            return paragraph(compare_text.waiting(base), width, text)
        return comparison_lines(comparison, base.label, palette, width)


def comparison_lines(
    comparison: Comparison, label: str, palette: Palette, width: int
) -> list[Text]:
    """The sentence, both sides, what changed and was promised, then the tables."""
    hue = {Outcome.FASTER: "good", Outcome.SLOWER: "alarm"}.get(comparison.outcome, "text")
    known = [("changed", kind) for kind in comparison.changes]
    known += [("promise", sentence) for sentence in compare_text.promises(comparison)]
    lines = [
        *paragraph(comparison.says, width, palette.style(hue, bold=True)),
        *_sides(comparison, label, palette, width),
        *facts(known, 8, palette, width),
    ]
    for table in tables.changes(comparison):
        if table.rows:
            lines += [Text(), palette.text(table.title, "text", bold=True)]
            lines += table_lines(table, palette, width)
    return stacked(lines, width)


def _sides(comparison: Comparison, label: str, palette: Palette, width: int) -> list[Text]:
    lines = []
    times = (comparison.before_ns, comparison.after_ns)
    for name, where, time_ns, verdict, regime, steps in zip(
        ("before", "after"), (label, "now"), times, compare_text.badges(comparison),
        comparison.regimes, comparison.steps, strict=True,
    ):  # fmt: skip
        hue = regime.value if regime.value in MARKS else "text"
        line = palette.text(f"{name:>8}  ", "muted").append(verdict, palette.style(hue, bold=True))
        words = [where]
        if comparison.per_step:
            words = [
                f"{units.duration(time_ns)} a step",
                *filter(None, [compare_text.averaged(steps)]),
                where,
            ]
        lines.append(line.append(f"  {', '.join(words)}", palette.style("text")))
    return lines
