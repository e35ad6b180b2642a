"""What-if: every edit that was simulated, and what the chosen one changes in a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual.binding import BindingType

from brrrtop.model.advice import WhatIf
from brrrtop.model.comparison import Change
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.commands import CHOOSE, VIEW_KEYS
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import facts, fitted, hanging, paragraph, stacked, under_cursor
from brrrtop.tui.screens.compare import FIGURES, LONGEST_BAR, change_row, change_titles, name_cells
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.scrolled import Chooser, Scrolled
from brrrtop.views import whatif as whatif_text

MARK, EDIT, TIMES, SAVES, SPAN = 2, 24, 22, 7, 13
SHORTEST_RANGE, LONGEST_RANGE = 9, 32
ZERO, RANGE, MIDDLE, BOTH = "│", "━", "●", "┼"
PARTS = 26
"""Cells of what a step is made of, beside its figures."""
LABEL = 6
LEAST_SAVING = -1.0
"""What is more than twice as slow would leave no room for the others."""
NONE = (
    "No edit was simulated: that needs whole steps, judged after warming up, of a GPU that this "
    "trainer has for itself."
)


def hue_of(row: WhatIf) -> str:
    """Good where even the low end wins, an alarm where even the high end costs."""
    if row.saves_low > 0:
        return "good"
    if row.saves_high < 0:
        return "alarm"
    return "text" if row.saves >= whatif_text.WORTH_A_LINE else "muted"


class EditTable(Chooser, Scrolled):
    """One edit is chosen."""

    KEYS = (CHOOSE, ("enter", "what changes", "focused.open"), *VIEW_KEYS)
    topic = "what if: each edit simulated, in the order of the advice"

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[WhatIf, ...] = ()

    def choices(self) -> Sequence[str]:
        return [row.edit for row in self._rows]

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        self._rows = whatif_text.ordered(snapshot)
        if not self._rows:
            return paragraph(NONE, width, self.palette.style("muted"))
        return table_lines(snapshot, self.at, self.palette, width)

    def reveal(self, place: int) -> None:
        self.reach(place, place + 2)

    def action_open(self) -> None:
        if self._rows:
            self.app.push_screen(SubView(EditPane(self._rows[self.at])))


def table_lines(snapshot: Snapshot, at: int, palette: Palette, width: int) -> list[Text]:
    """Titles, a row an edit, then the chosen one's line of code and what the figures mean."""
    rows = whatif_text.ordered(snapshot)
    bar, code = _columns(rows, width)
    least = min(0.0, *(r.saves_low for r in rows))
    scale = max(least, LEAST_SAVING), max(r.saves_high for r in rows)
    lines = [_titles(bar, code, palette, width)]
    for place, row in enumerate(rows):
        line = _row(row, "▸" if place == at else " ", scale, (bar, code), palette, width)
        lines.append(under_cursor(line, palette, width) if place == at else line)
    known = [] if code else [("line", rows[at].line)]
    best, after = whatif_text.following(snapshot)
    if rows[at].edit == best:
        known.append(("then", f"after {best}: {after}"))
    terms = f"{whatif_text.TERMS} {RANGE}{MIDDLE}{RANGE} is the range, on one scale for all."
    below = paragraph(terms, width, palette.style("muted"))
    return stacked([*lines, Text(), *facts(known, LABEL, palette, width), *below], width)


def _columns(rows: Sequence[WhatIf], width: int) -> tuple[int, int]:
    """Cells of the bar and of the code, 0 where they do not fit."""
    room = width - MARK - EDIT - TIMES - SAVES - SPAN
    code = max(len(row.line) for row in rows) + 2
    if room >= SHORTEST_RANGE + code:
        return min(LONGEST_RANGE, room - code), code
    return (min(LONGEST_RANGE, room) if room >= SHORTEST_RANGE else 0), 0


def _titles(bar: int, code: int, palette: Palette, width: int) -> Text:
    title = f"{'':{MARK}}{'edit':<{EDIT}}"
    if width >= MARK + EDIT + TIMES + SAVES:
        title += f"{'now → then':>{TIMES}}"
    title += f"{'faster':>{SAVES}}"
    if width >= len(title) + SPAN:
        title += f"  {'range':<{SPAN - 2}}" + " " * bar
    if code:
        title += "  line of code"
    return palette.text(title, "muted")


def _row(
    row: WhatIf,
    mark: str,
    scale: tuple[float, float],
    columns: tuple[int, int],
    palette: Palette,
    width: int,
) -> Text:
    bar, code = columns
    hue = hue_of(row)
    line = Text(no_wrap=True).append(f"{mark:<{MARK}}", palette.style("text", bold=True))
    line.append(fitted(row.edit, EDIT), palette.style("muted" if hue == "muted" else "text"))
    if width >= MARK + EDIT + TIMES + SAVES:
        line.append(f"{whatif_text.times(row):>{TIMES}}", palette.style("text"))
    speed, between = whatif_text.speeds(row)
    line.append(f"{speed:>{SAVES}}", palette.style(hue, bold=True))
    if width >= line.cell_len + SPAN:
        line.append(f"  {fitted(between, SPAN - 2)}", palette.style(hue))
    if bar:
        ends = row.saves_low, row.saves, row.saves_high
        line.append_text(range_bar(*ends, scale, hue, palette, bar))
    if code:
        line.append(f"  {row.line}", palette.style("muted" if hue == "muted" else "text"))
    return line


class EditPane(Scrolled):
    """Lies over the table; Esc leads back to it."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,backspace", "app.back")]
    KEYS = (("esc", "back", "app.back"), *VIEW_KEYS[1:])
    topic = "what if: one step, before and after the edit"

    def __init__(self, row: WhatIf) -> None:
        super().__init__()
        self._row = row

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        rows = {row.edit: row for row in snapshot.whatif}
        gone = self._row.edit not in rows
        self._row = rows.get(self._row.edit, self._row)
        best = whatif_text.following(snapshot)[0]
        after = snapshot.whatif_after if not gone and best == self._row.edit else ()
        return edit_lines(self._row, after, gone, self.palette, width)


def edit_lines(
    row: WhatIf, after: Sequence[WhatIf], gone: bool, palette: Palette, width: int
) -> list[Text]:
    """The edit, what a step is made of with it and without, and which edit comes best after it."""
    where = "   not in this window; as last seen" if gone else ""
    head = Text(no_wrap=True).append(row.edit, palette.style("text", bold=True))
    lines = [head.append(where, palette.style("muted"))]
    lines += hanging("  ", row.line, width, Style.null(), palette.style("text"))
    lines += [Text(), *_parts(row, palette, width), Text()]
    speed, between = whatif_text.speeds(row)
    gain = f"{speed} as fast, range {between}"
    lines += facts([("gain", gain)], LABEL, palette, width, hue_of(row))
    if row.advisory is not None:
        lines += facts([("advice", f"{row.advisory}; a shows it")], LABEL, palette, width)
    elif row.saves < whatif_text.WORTH_A_LINE:
        none = "none: it is not worth trying now"
        lines += facts([("advice", none)], LABEL, palette, width, "muted")
    for place, pair in enumerate(after):
        says = f"{whatif_text.last(pair)}: {whatif_text.more(pair, row)}, "
        says += f"{units.duration(pair.step_ns)} a step with both"
        says += f" ({whatif_text.span(pair.saves_low, pair.saves_high)})"
        lines += facts([("" if place else "then", says)], LABEL, palette, width)
    terms = paragraph(whatif_text.TERMS, width, palette.style("muted"))
    return stacked([*lines, Text(), *terms], width)


def _parts(row: WhatIf, palette: Palette, width: int) -> list[Text]:
    """The step, the GPU's part and the host's in time, and the kernels in number."""
    whole = Change("step", row.present_ns, row.step_ns)
    width = min(width, PARTS + FIGURES + 1 + LONGEST_BAR)  # wider only parts names and figures
    line_of = partial(change_row, whole=whole, least=PARTS, palette=palette, width=width)
    lines = [change_titles("one step, simulated", PARTS, palette, width), line_of(whole)]
    now, then = row.now, row.then
    if now is None or then is None:
        return lines
    lines.append(line_of(Change("GPU busy", now.device_ns, then.device_ns), "C", "compute"))
    host = Change("host, without GPU waits", now.host_ns, then.host_ns)
    lines.append(line_of(host, "", "idle_host"))
    counts = (now.kernels, then.kernels, now.kernels - then.kernels)
    before, after, won = (f"{round(count):,}" for count in counts)
    name = fitted("kernels and copies", name_cells(width, PARTS))
    line = Text(name, palette.style("text"), no_wrap=True)
    line.append(f"{before:>9}{after:>10}", palette.style("text"))
    lines.append(line.append(f"{won:>10}", palette.style("muted", bold=True)))
    return lines


def range_bar(
    low: float,
    middle: float,
    high: float,
    scale: tuple[float, float],
    hue: str,
    palette: Palette,
    cells: int,
) -> Text:
    """`cells` characters from the scale's least value to its largest."""
    least, most = scale
    per = (cells - 1) / ((most - least) or 1.0)

    def place(value: float) -> int:
        return min(cells - 1, max(0, round((value - least) * per)))

    signs = [" "] * cells
    signs[place(0.0)] = ZERO
    for at in range(place(low), place(high) + 1):
        signs[at] = RANGE if signs[at] == " " else BOTH
    signs[place(middle)] = MIDDLE
    bar = Text(no_wrap=True)
    for at, sign in enumerate(signs):
        style = palette.style("rule" if sign == ZERO else hue, bold=at == place(middle))
        bar.append(sign, style)
    return bar
