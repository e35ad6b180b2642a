"""What-if: every edit that was simulated, and what the chosen one changes in a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message

from brrrtop.model.advice import WhatIf
from brrrtop.model.comparison import Change
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.line import fitted, stacked, wrapped
from brrrtop.tui.renderables.range_bar import MIDDLE, RANGE, range_bar
from brrrtop.tui.screens.compare import (
    FIGURES,
    change_row,
    change_titles,
    name_cells,
)
from brrrtop.tui.screens.compare import (
    LONGEST_BAR as LONGEST_CHANGE,
)
from brrrtop.tui.screens.view import KEYS, SubView
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.views import whatif as whatif_text

MARK, EDIT, TIMES, SAVES, SPAN = 2, 24, 22, 7, 13
SHORTEST_BAR, LONGEST_BAR = 9, 32
PARTS = 26
"""Cells of what a step is made of, beside its figures."""
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


class EditTable(Scrolled):
    """One edit is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", show=False),
        Binding("down,j", "choose(1)", show=False),
        Binding("home,g", "choose(-1000)", show=False),
        Binding("end,G", "choose(1000)", show=False),
        Binding("enter", "open", show=False),
    ]
    topic = "what if: each edit simulated, best first"

    class Opened(Message):
        """What this edit changes in a step is wanted."""

        def __init__(self, row: WhatIf) -> None:
            super().__init__()
            self.row = row

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[WhatIf, ...] = ()
        self._chosen: str | None = None

    @property
    def at(self) -> int:
        """Place of the chosen row; of the first one where it has gone."""
        edits = [row.edit for row in self._rows]
        return edits.index(self._chosen) if self._chosen in edits else 0

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        self._rows = snapshot.whatif
        if not self._rows:
            return [Text.styled(line, self.palette.style("muted")) for line in wrapped(NONE, width)]
        return table_lines(snapshot, self.at, self.palette, width)

    def action_choose(self, by: int) -> None:
        """Another row, scrolled so far that it is seen."""
        if not self._rows:
            return
        at = min(max(self.at + by, 0), len(self._rows) - 1)
        self._chosen = self._rows[at].edit
        room = max(1, self.content_size.height - 1)
        self._top = min(max(self._top, at + 2 - room), at)
        self.redraw()

    def action_open(self) -> None:
        if self._rows:
            self.post_message(self.Opened(self._rows[self.at]))


def table_lines(snapshot: Snapshot, at: int, palette: Palette, width: int) -> list[Text]:
    """Titles, a row an edit, then the chosen one's line of code and what the figures mean."""
    rows = snapshot.whatif
    bar, code = _columns(rows, width)
    least = min(
        0.0, *(r.saves_low for r in rows)
    )  # what is far slower would leave no room for the others
    scale = max(least, whatif_text.TWICE), max(r.saves_high for r in rows)
    lines = [_titles(bar, code, palette, width)]
    for place, row in enumerate(rows):
        line = _row(row, "▸" if place == at else " ", scale, (bar, code), palette, width)
        if place == at:
            line.append(" " * max(0, width - line.cell_len))
            line.stylize(palette.cursor)
        lines.append(line)
    lines.append(Text())
    if not code:
        lines += _with_label("line", rows[at].line, "text", palette, width)
    if at == 0 and snapshot.whatif_after:
        lines += _with_label("then", _following(snapshot), "text", palette, width)
    terms = f"{whatif_text.TERMS} {RANGE}{MIDDLE}{RANGE} is the range, on one scale for all."
    lines += [Text.styled(line, palette.style("muted")) for line in wrapped(terms, width)]
    return stacked(lines, width)


def _columns(rows: Sequence[WhatIf], width: int) -> tuple[int, int]:
    """Cells of the bar and of the code, 0 where they do not fit."""
    room = width - MARK - EDIT - TIMES - SAVES - SPAN
    code = max(len(row.line) for row in rows) + 2
    if room >= SHORTEST_BAR + code:
        return min(LONGEST_BAR, room - code), code
    return (min(LONGEST_BAR, room) if room >= SHORTEST_BAR else 0), 0


def _titles(bar: int, code: int, palette: Palette, width: int) -> Text:
    title = f"{'':{MARK}}{'edit':<{EDIT}}"
    if width >= MARK + EDIT + TIMES + SAVES:
        title += f"{'now → then':>{TIMES}}"
    title += f"{'saves':>{SAVES}}"
    if width >= len(title) + SPAN:
        title += f"  {'range':<{SPAN - 2}}" + " " * bar
    if code:
        title += "  line of code"
    return Text.styled(title, palette.style("muted"))


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
    saves, between = whatif_text.saving(row)
    line.append(f"{saves:>{SAVES}}", palette.style(hue, bold=True))
    if width >= line.cell_len + SPAN:
        line.append(f"  {fitted(between.removesuffix(' as long'), SPAN - 2)}", palette.style(hue))
    if bar:
        ends = row.saves_low, row.saves, row.saves_high
        line.append_text(range_bar(*ends, scale, hue, palette, bar))
    if code:
        line.append(f"  {row.line}", palette.style("muted" if hue == "muted" else "text"))
    return line


def _following(snapshot: Snapshot) -> str:
    first = snapshot.whatif[0]
    pairs = (
        f"{whatif_text.last(pair)} {whatif_text.more(pair, first)}"
        for pair in snapshot.whatif_after
    )
    return f"after {first.edit}: {', '.join(pairs)}"


class EditPane(Scrolled):
    topic = "what if: one step, before and after the edit"

    def __init__(self, row: WhatIf) -> None:
        super().__init__()
        self._row = row

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        rows = {row.edit: row for row in snapshot.whatif}
        gone = self._row.edit not in rows
        self._row = rows.get(self._row.edit, self._row)
        first = not gone and snapshot.whatif[0] is self._row
        after = snapshot.whatif_after if first else ()
        return edit_lines(self._row, after, gone, self.palette, width)


def edit_lines(
    row: WhatIf, after: Sequence[WhatIf], gone: bool, palette: Palette, width: int
) -> list[Text]:
    """The edit, what a step is made of with it and without, and which edit comes best after it."""
    where = "   not in this window; as last seen" if gone else ""
    head = Text(no_wrap=True).append(row.edit, palette.style("text", bold=True))
    lines = [head.append(where, palette.style("muted"))]
    lines += [
        Text.styled(f"  {part}", palette.style("text")) for part in wrapped(row.line, width - 2)
    ]
    lines += [Text(), *_parts(row, palette, width), Text()]
    saves, between = whatif_text.saving(row)
    says = f"{saves}{' of the step' * (saves != 'slower')}, four times of five {between}"
    if row.saves > 0:
        says += f"; {units.times_as_fast(row.saves)} as fast"
    lines += _with_label("saves", says, hue_of(row), palette, width)
    if row.advisory is not None:
        lines += _with_label("advice", f"{row.advisory}; a shows it", "text", palette, width)
    elif row.saves < whatif_text.WORTH_A_LINE:
        lines += _with_label("advice", "none: it is not worth trying now", "muted", palette, width)
    for place, pair in enumerate(after):
        says = f"{whatif_text.last(pair)}: {whatif_text.more(pair, row)}, "
        says += f"{units.duration(pair.step_ns)} a step with both"
        says += f" (saves {whatif_text.span(pair.saves_low, pair.saves_high)})"
        lines += _with_label("" if place else "then", says, "text", palette, width)
    terms = wrapped(whatif_text.TERMS, width)
    return stacked(
        [*lines, Text(), *(Text.styled(t, palette.style("muted")) for t in terms)], width
    )


def _parts(row: WhatIf, palette: Palette, width: int) -> list[Text]:
    """The step, the GPU's part and the host's in time, and the kernels in number."""
    step = Change("step", row.present_ns, row.step_ns)
    width = min(width, PARTS + FIGURES + 1 + LONGEST_CHANGE)  # wider only parts names and figures
    lines = [change_titles("one step, simulated", PARTS, palette, width)]
    lines.append(change_row(step, whole=step, least=PARTS, palette=palette, width=width))
    now, then = row.now, row.then
    if now is None or then is None:
        return lines
    gpu = Change("GPU busy", now.device_ns, then.device_ns)
    host = Change("host, without GPU waits", now.host_ns, then.host_ns)
    lines.append(
        change_row(
            gpu, mark="C", hue="compute", whole=step, least=PARTS, palette=palette, width=width
        )
    )
    lines.append(
        change_row(
            host, mark="h", hue="idle_host", whole=step, least=PARTS, palette=palette, width=width
        )
    )
    counts = (now.kernels, then.kernels, now.kernels - then.kernels)
    before, after, won = (f"{round(count):,}" for count in counts)
    name = fitted("kernels and copies", name_cells(width, PARTS))
    line = Text(name, palette.style("text"), no_wrap=True)
    line.append(f"{before:>9}{after:>10}", palette.style("text"))
    lines.append(line.append(f"{won:>10}", palette.style("muted", bold=True)))
    return lines


def _with_label(label: str, words: str, hue: str, palette: Palette, width: int) -> list[Text]:
    lines = []
    for i, part in enumerate(wrapped(words, max(10, width - 8))):
        line = Text(no_wrap=True).append(f"{label if not i else '':>6}  ", palette.style("muted"))
        lines.append(line.append(part, palette.style(hue)))
    return lines


class WhatIfView(SubView):
    KEYS = (
        ("↑↓", "choose", "focused.choose(1)"),
        ("enter", "what changes", "focused.open"),
        *KEYS,
    )

    def body(self) -> EditTable:
        return EditTable()


class EditView(SubView):
    """Lies over the table; Esc leads back to it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "app.back", show=False),
    ]
    KEYS = (("esc", "back", "app.back"), *KEYS[1:])

    def __init__(self, row: WhatIf) -> None:
        super().__init__()
        self._row = row

    def body(self) -> EditPane:
        return EditPane(self._row)
