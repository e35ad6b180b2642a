"""What-if: every edit that was simulated, and what the chosen one changes in a step."""

from time import monotonic
from typing import Any

from rich.text import Text

from brrrtop.model.advice import WhatIf
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.renderables.ghost import drawable, ghost_lap, ghost_line, race
from brrrtop.tui.renderables.line import facts, paragraph, rule
from brrrtop.tui.renderables.swim_lanes import GUTTER, drawn
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.table import TableView
from brrrtop.tui.widgets.time_spent import step_title
from brrrtop.views import tables, whatif
from brrrtop.views.table import Table

LABEL = 6
FRAME_S = 0.5
"""Between two pictures of the ghost lap."""
PICTURE_FROM, PICTURE_MOST = 7, 12
"""Lines that are left from which a step is drawn, and the most that it takes."""
NONE = (
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
        return paragraph(NONE, width, self.palette.style("muted"))

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        """In lines that are left: a traced step as it is, below it that with the edit, on its scale."""
        lines = super().draw(snapshot, width, height)
        left, picture, palette = height - len(lines) - 1, snapshot.picture, self.palette
        if left < PICTURE_FROM or picture is None or not self.rows:
            return lines
        one = drawable(picture, race(snapshot, self.rows[self.at]))
        if one is None:
            return lines
        lines += [Text(), rule(step_title(picture, snapshot), "p: larger", palette, width)]
        return [
            *lines,
            *drawn(picture, picture.span, palette, width, min(left - 2, PICTURE_MOST)),
            ghost_line(one, palette, width, GUTTER, picture.span.duration_ns),
        ]

    def below(self, snapshot: Snapshot, row: Any, width: int) -> list[Text]:
        palette = self.palette
        lines = table_lines(tables.edit_parts(row, snapshot.run), palette, width)
        known = [("line", row.line), ("advice", _advice(row))]
        if (run := snapshot.run) is not None:
            then_ns = run.duration_ns * (1 - row.saves)
            known.insert(0, ("run", f"{units.clock(run.duration_ns)} → {units.clock(then_ns)}"))
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
