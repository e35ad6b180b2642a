"""Before and after: what a change won, by bucket and by kernel, beside what was promised."""

from rich.text import Text

from brrrtop.model.advice import Comparison, Outcome
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import MARKS, Palette
from brrrtop.tui.renderables.line import facts, paragraph, stacked
from brrrtop.tui.renderables.table import table_lines
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.views import comparison as compare_text
from brrrtop.views import tables


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
