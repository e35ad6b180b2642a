"""Before and after: what a change won, by bucket and by kernel, beside what was promised."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import zip_longest

from rich.text import Text

from brrrtop.kernel_names.readable import fitted
from brrrtop.model.comparison import Change, Comparison, Outcome
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import MARKS, Palette, letter
from brrrtop.tui.renderables.line import facts, paragraph, stacked
from brrrtop.tui.renderables.line import fitted as in_cells
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.views import comparison as compare_text

FIGURES = 29
"""Cells of before, after and won beside each other."""
TWO_COLUMNS = 118
GAP = 3
LONGEST_BAR, SHORTEST_BAR = 24, 8
BAR_SAYS = "█ after  ░ won  + more"
BUCKET, KERNEL = 19, 24
"""Cells that the names of buckets and of kernels need before a bar may take any."""


class BeforeAfter(Scrolled):
    topic = "before and after"

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        base, comparison, palette = snapshot.baseline, snapshot.comparison, self.palette
        if base is None:
            parts = compare_text.NO_BASELINE
            return [
                line for part in parts for line in paragraph(part, width, palette.style("text"))
            ]
        if comparison is None:
            return paragraph(compare_text.waiting(base), width, palette.style("text"))
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
        Text(),
    ]
    if width < TWO_COLUMNS:
        tables = _buckets(comparison, palette, width), _kernels(comparison, palette, width)
        return stacked([*lines, *tables[0], Text(), *tables[1]], width)
    left = (width - GAP) // 2
    kernels = _kernels(comparison, palette, width - GAP - left)
    return stacked(lines + _beside(_buckets(comparison, palette, left), kernels, left), width)


def _sides(comparison: Comparison, label: str, palette: Palette, width: int) -> list[Text]:
    lines = []
    per = "a step" if comparison.per_step else ""
    sides = (("before", comparison.before_ns, label), ("after", comparison.after_ns, "now"))
    for (name, time_ns, where), verdict, regime, steps in zip(
        sides, comparison.verdicts, comparison.regimes, comparison.steps, strict=True
    ):
        pace = f"{units.duration(time_ns)} {per}" if per else ""
        hue = regime.value if regime.value in MARKS else "text"
        line = Text(no_wrap=True).append(f"{name:>8}  ", palette.style("muted"))
        line.append(f"{verdict:<26} ", palette.style(hue, bold=True))
        line.append(f"{pace:>15}  ", palette.style("text", bold=True))
        of = compare_text.averaged(steps) if per else ""
        lines.append(line.append(where, palette.style("muted")))
        if of and line.cell_len + len(of) + 2 > width:
            line = Text(" " * 10, no_wrap=True)
            lines.append(line.append(of, palette.style("muted")))
        elif of:
            line.append(f", {of}", palette.style("muted"))
    return lines


def _buckets(comparison: Comparison, palette: Palette, width: int) -> list[Text]:
    whole = Change("the whole", comparison.before_ns, comparison.after_ns)
    row = partial(change_row, whole=whole, least=BUCKET, palette=palette, width=width)
    lines = [change_titles(compare_text.unit(comparison), BUCKET, palette, width)]
    lines.append(row(whole))
    for change in comparison.buckets:
        key = change.name.replace(": ", "_").replace(" ", "_")
        mark = letter(key) if key in MARKS else ""
        lines.append(row(change, mark, key if mark else "text"))
    return lines


def _kernels(comparison: Comparison, palette: Palette, width: int) -> list[Text]:
    whole = Change("", comparison.before_ns, comparison.after_ns)
    row = partial(change_row, whole=whole, least=KERNEL, palette=palette, width=width)
    lines = [change_titles("kernels by family", KERNEL, palette, width)]
    families = comparison.families[: compare_text.FAMILIES_SHOWN]
    lines += [row(one) for one in families]
    lines += [Text(), change_titles("kernels that changed most", KERNEL, palette, width)]
    return lines + [row(one) for one in comparison.kernels]


def name_cells(width: int, least: int) -> int:
    """Cells of the names in rows so wide, of which the names need `least`."""
    return _columns(width, least)[0]


def _columns(width: int, least: int) -> tuple[int, int]:
    """Cells of the name and of the bar."""
    room = width - FIGURES - 1
    bar = min(LONGEST_BAR, room - least)
    return (room - bar, bar) if bar >= SHORTEST_BAR else (room, 0)


def change_titles(title: str, least: int, palette: Palette, width: int) -> Text:
    """Titles of `change_row`s."""
    name, bar = _columns(width, least)
    line = Text(no_wrap=True).append(title.ljust(name), palette.style("text", bold=True))
    line.append(f"{'before':>9}{'after':>10}{'won':>10}", palette.style("muted"))
    return line.append(f" {BAR_SAYS}", palette.style("muted")) if bar >= len(BAR_SAYS) else line


def change_row(
    change: Change, mark: str = "", hue: str = "text", *, whole: Change, least: int, palette: Palette,
    width: int,
) -> Text:  # fmt: skip
    """Name, three figures, and a bar of what stayed, went and came."""
    names, bar_cells = _columns(width, least)
    line = Text(no_wrap=True)
    if mark:
        line.append(mark, palette.filled(hue)).append(" ")
    room = max(1, names - line.cell_len - 1)
    line.append(in_cells(fitted(change.name, room), room) + " ", palette.style("text"))
    before, after, won = compare_text.figures(change)
    line.append(f"{before:>9}{after:>10}", palette.style("text"))
    line.append(f"{won:>10}", palette.style(_worth(change, whole), bold=True))
    if bar_cells:
        line.append(" ").append_text(_bar(change, hue, whole, palette, bar_cells))
    return line


def _worth(change: Change, whole: Change) -> str:
    """Hue of what was won: plain when it is under a hundredth of the whole."""
    if abs(change.won_ns) < 0.01 * max(whole.before_ns, whole.after_ns):
        return "muted"
    return "good" if change.won_ns > 0 else "alarm"


def _bar(change: Change, hue: str, whole: Change, palette: Palette, cells: int) -> Text:
    """What there is now, then what is gone (light) or what was not there before (a plus each)."""
    scale = cells / (max(whole.before_ns, whole.after_ns) or 1.0)
    before, after = (
        min(cells, round(value * scale)) for value in (change.before_ns, change.after_ns)
    )
    bar = Text("█" * min(before, after), palette.style(hue), no_wrap=True)
    if before > after:
        bar.append("░" * (before - after), palette.style("good"))
    return bar.append("+" * (after - before), palette.style("alarm")) if after > before else bar


def _beside(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    lines = []
    for one, other in zip_longest(left, right, fillvalue=Text()):
        line = one.copy()
        line.append(" " * (width + GAP - line.cell_len))
        lines.append(line.append_text(other))
    return lines
