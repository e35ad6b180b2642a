"""All ranks of a job, a row each, the odd one on top: who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType

from brrrtop.model.ranks import JobSnapshot, RankRow
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.text import ranks as words
from brrrtop.tui.commands import CHOOSE, VIEW_KEYS
from brrrtop.tui.palette import Palette, letter
from brrrtop.tui.parts import split_parts
from brrrtop.tui.renderables.bar import bar
from brrrtop.tui.renderables.line import fitted, hanging, paragraph, stacked, under_cursor
from brrrtop.tui.widgets.scrolled import Chooser, Scrolled
from collectors.vocabulary import Metric

MARK, RANK, GPU, STEP, WAITS, LATE, LAST = 2, 5, 5, 10, 8, 10, 9
SHORTEST_BAR, LONGEST_BAR = 12, 40
VERDICT = 32
"""`OVERHEAD-BOUND (other process)` and the space before it."""
COLLECTIVES_SHOWN = 6
WIDE = 100
"""Columns that the table of collectives takes."""
GAUGES: tuple[tuple[str, Metric, int, Callable[[float], str]], ...] = (
    ("memory", Metric.MEMORY_USED_BYTES, 10, units.size),
    ("power", Metric.POWER_WATT, 8, "{:.0f} W".format),
    ("temp", Metric.TEMPERATURE_C, 6, "{:.0f} °C".format),
)
NONE = "One rank by itself. Name the files of all ranks, or attach to the launcher of the job."
TERMS = (
    "waits: of the time, in collectives for peers with no kernel of its own beside it. late: how much "
    "longer its own work takes than its peers', a step. last: in how many collectives it came last."
)


class RankTable(Chooser, Scrolled):
    """One rank is chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [("pageup", "choose(-10)"), ("pagedown", "choose(10)")]
    KEYS = (CHOOSE, ("enter", "open this rank", "focused.open"), *VIEW_KEYS[1:])
    topic = "ranks of the job, the odd one first"

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[RankRow, ...] = ()
        self._head = 0

    def choices(self) -> Sequence[str]:
        return [row.key for row in self._rows]

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        job, palette = snapshot.job, self.palette
        self._rows = job.ranks if job is not None else ()
        if job is None:
            return paragraph(NONE, width, palette.style("muted"))
        head = head_lines(job, palette, width)
        self._head = len(head)
        return [
            *head, *table_lines(job, self.at, palette, width),
            *collective_lines(job, palette, width), *advice_lines(job, palette, width),
        ]  # fmt: skip

    def reveal(self, place: int) -> None:
        line = self._head + 1 + place if place else 0
        self.reach(line, line + 1)

    def action_open(self) -> None:
        if self._rows:
            self.app.action_show_rank(self.choices()[self.at])
            self.app.action_main()


def head_lines(job: JobSnapshot, palette: Palette, width: int) -> list[Text]:
    """Who waits for whom, and what the job is."""
    waited = job.waited_for
    hue = "alarm" if waited is not None and waited.is_slow else "text"
    says = words.sentence(job)
    lines = paragraph(says[0].upper() + says[1:], width, palette.style(hue, bold=True))
    known = [f"{len(job.ranks)} ranks" + (f" of {job.world}" if job.world else "")]
    known += [words.parallel(job)] if job.parallelism else []
    known.append(f"{units.count(job.matched)} collectives matched")
    known += filter(None, [words.transfer(job)])
    for row in job.whatif:
        known.append(f"{units.duration(row.step_ns)} a step with no late rank")
    notes = [note for note in job.notes if note != says]
    below = " · ".join([*known, *notes])
    return [*lines, *paragraph(below, width, palette.style("muted")), Text()]


def table_lines(job: JobSnapshot, at: int, palette: Palette, width: int) -> list[Text]:
    """Titles, a row a rank, and what the figures mean."""
    columns = Columns(job.ranks, width)
    lines = [_titles(columns, palette)]
    for place, row in enumerate(job.ranks):
        line = _row(row, job, place == at, columns, palette, width)
        lines.append(under_cursor(line, palette, width) if place == at else line)
    return stacked([*lines, Text(), *paragraph(TERMS, width, palette.style("muted"))], width)


def collective_lines(job: JobSnapshot, palette: Palette, width: int) -> list[Text]:
    """What the ranks meet in, by time; nothing where nothing was matched or no room is."""
    if not job.collectives or width < WIDE:
        return []
    muted, plain = palette.style("muted"), palette.style("text")
    title = f"  {'collectives by time':<30}{'ranks':>6}{'count':>7}{'size':>11}{'transfer':>11}"
    lines = [Text(), Text.styled(f"{title}{'waiting':>11}{'bus':>11}{'of link':>9}", muted)]
    for one in job.collectives[:COLLECTIVES_SHOWN]:
        name = f"{one.name} ({one.algorithm})" if one.algorithm else one.name
        row = f"  {fitted(name, 29):<30}{len(one.ranks):>6}{one.count:>7}{units.size(one.size_bytes):>11}"
        line = Text(row, plain)
        line.append(f"{units.duration(one.transfer_ns):>11}")
        line.append(f"{units.duration(one.wait_ns):>11}", palette.style("comm"))
        line.append(f"{units.rate(one.bus_bytes_per_s, 'B/s'):>11}")
        lines.append(line.append(f"{units.share(one.link_share):>9}"))
    rest = job.collectives[COLLECTIVES_SHOWN:]
    if rest:
        count = units.count(sum(one.count for one in rest))
        lines.append(Text.styled(f"  and {count} more of {len(rest)} kinds", muted))
    return lines


def advice_lines(job: JobSnapshot, palette: Palette, width: int) -> list[Text]:
    """What to try for the rank that the others wait for, and what is no use."""
    muted, plain = palette.style("muted"), palette.style("text")
    lines: list[Text] = []
    for one in job.advisories:
        lines.append(Text())
        for word, says in (("try", one.suggests), ("no use", one.waste)):
            lines += hanging(f"{'':{MARK}}{word:<8}", says or "", width, muted, plain)
    return lines


class Columns:
    """Which columns there is room for, and how wide the bar is."""

    def __init__(self, rows: Sequence[RankRow], width: int) -> None:
        room = width - MARK - RANK - STEP
        self.waits = room >= WAITS + LATE
        room -= (WAITS + LATE) * self.waits
        self.gpu = room >= GPU + SHORTEST_BAR
        room -= GPU * self.gpu
        self.bar = SHORTEST_BAR if room >= SHORTEST_BAR + 1 else 0
        room -= (self.bar + 1) * bool(self.bar)
        self.last = room >= LAST
        room -= LAST * self.last
        self.verdict = VERDICT if room >= VERDICT else 0
        room -= self.verdict
        self.gauges = 0
        for _, _, cells, _ in GAUGES:
            if room < cells:
                break
            self.gauges += 1
            room -= cells
        if self.bar:
            self.bar += min(max(room, 0), LONGEST_BAR - self.bar)
        if not any(metric in row.gauges for row in rows for _, metric, *_ in GAUGES):
            self.gauges = 0


def _titles(columns: Columns, palette: Palette) -> Text:
    title = " " * MARK + f"{'rank':<{RANK}}" + (f"{'GPU':>{GPU - 1}} " if columns.gpu else "")
    title += f"{'step':>{STEP - 1}} "
    if columns.bar:
        title += f"{'split':<{columns.bar}} "
    if columns.waits:
        title += f"{'waits':>{WAITS}}{'late':>{LATE}}"
    title += f"{'last':>{LAST}}" if columns.last else ""
    for name, _, cells, _ in GAUGES[: columns.gauges]:
        title += f"{name:>{cells}}"
    title += f"  {'verdict'}" if columns.verdict else ""
    return palette.text(title, "muted")


def _row(
    row: RankRow, job: JobSnapshot, chosen: bool, columns: Columns, palette: Palette, width: int
) -> Text:
    waited = job.waited_for
    odd = waited is not None and row.rank == waited.rank
    hue = "alarm" if odd and waited is not None and waited.is_slow else "text"
    line = Text(no_wrap=True)
    line.append("▸ " if chosen else "  ", palette.style("text", bold=True))
    number = "–" if row.rank is None else str(row.rank)
    line.append(f"{number:<{RANK}}", palette.style(hue, bold=odd))
    if row.estimate is None:
        why = f"{row.label}: {row.why or phrases.NOTHING_YET}"
        return line.append(fitted(why, max(1, width - line.cell_len)), palette.style("muted"))
    if columns.gpu:
        line.append(f"{row.estimate.device.device_id:>{GPU - 1}} ", palette.style("text"))
    line.append(f"{units.duration(row.step_ns):>{STEP - 1}} ", palette.style("text"))
    if columns.bar:
        parts = split_parts(row.estimate.split)
        labels = [(f"{letter(name)} {units.share(part)}", letter(name)) for name, part in parts]
        line.append_text(bar(parts, palette, columns.bar, labels)).append(" ")
    if columns.waits:
        line.append(f"{units.share(row.waits_for_peers):>{WAITS}}", palette.style("comm"))
        line.append(f"{units.duration(row.late_ns):>{LATE}}", palette.style(hue, bold=odd))
    if columns.last:
        last = f"{row.last_in}/{row.matched}" if row.matched else units.UNMEASURED
        line.append(f"{last:>{LAST}}", palette.style("text"))
    for _, metric, cells, form in GAUGES[: columns.gauges]:
        value = row.gauges.get(metric)
        reading = units.UNMEASURED if value is None else form(value)
        line.append(f"{reading:>{cells}}", palette.style("text"))
    if columns.verdict:
        verdict = row.why or phrases.verdict(row.estimate)
        line.append(
            f"  {fitted(verdict, max(1, width - line.cell_len - 2))}", palette.style("text")
        )
    return line
