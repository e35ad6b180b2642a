"""Where the time went: over time by cause, with phases and what happened; in one step."""

from bisect import bisect_left, bisect_right
from itertools import groupby

from rich.text import Text
from textual.events import Click

from brrrtop.model.run import Run
from brrrtop.model.snapshot import HistoryPoint, Snapshot, StepPicture
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import mean_step_ns
from brrrtop.tui.renderables.history import (
    UNLIKE,
    Layers,
    column_ns,
    columns,
    drawable,
    ghost_line,
    layers,
    race,
    stacked_area,
)
from brrrtop.tui.renderables.line import rule, styled
from brrrtop.tui.renderables.swim_lanes import GUTTER, axis, drawn
from brrrtop.tui.widgets.pane import Pane

MS = 1_000_000
TIMES_FROM = 8
"""Height from which a line of the picture of a step is spent on the time."""
GHOST_FROM = 6
"""The same for the ghost's lane."""
TITLE_FROM, PHASES_FROM = 4, 3
"""Heights from which a line is spent on the title, on phases and marks."""
AXIS = 6
"""Cells of the axis at the left."""
LEAST_STRETCH = 3
"""Cells from which a phase is named."""
MARKS = {
    "regime": ("◆", "text"),
    "baseline": ("m", "good"),
    "checkpoint": ("k", "idle_checkpoint"),
    "evaluation": ("e", "idle_evaluation"),
    "compile": ("j", "idle_compile"),
    "recompile": ("j", "idle_compile"),
    "stall": ("s", "overhead"),
    "throttle": ("!", "alarm"),
    "change": ("c", "good"),
    "trainer": ("t", "memory"),
}
"""Sign and hue of an event below the history; other events have none."""


Stretch = tuple[str, str, int, int]
"""The kind of a phase, its place, begin and end."""


class HistoryGraph(Pane):
    def __init__(self) -> None:
        super().__init__()
        self._layers: dict[int, tuple[HistoryPoint, Layers]] = {}
        """Of the points shown last, by their identity: most are shown again."""

    def inputs(self, snapshot: Snapshot) -> object:
        """The present only as far as it has come to another column."""
        if not snapshot.history:
            return ()
        edges = column_edges(snapshot, max(1, self.content_size.width - AXIS))
        seen = bisect_left(edges, snapshot.now_ns)
        passed = sum(event.t_ns <= snapshot.now_ns for event in snapshot.events)
        return (snapshot.history, snapshot.events, edges[0] // MS, edges[-1] // MS, seen, passed)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        history, palette = snapshot.history, self.palette
        if not history:
            return [palette.text("no history yet", "muted")]
        edges = column_edges(snapshot, max(1, width - AXIS))
        shown = columns(history, edges, snapshot.now_ns)
        points = {id(point): point for point in shown if point is not None}
        self._layers = {
            key: self._layers.get(key) or (one, layers(one)) for key, one in points.items()
        }
        area = [None if point is None else self._layers[id(point)][1] for point in shown]
        title, phases = height >= TITLE_FROM, height >= PHASES_FROM
        room = height - title - phases
        lines = [rule("history", span_words(snapshot, edges), palette, width)] if title else []
        for row, line in enumerate(stacked_area(area, palette, room)):
            label = "100%" if row == 0 else "0%" if row == room - 1 else ""
            lines.append(axis_cell(label, palette).append_text(line))
        if phases:
            lines.append(axis_cell("", palette).append_text(phase_line(snapshot, edges, palette)))
        return lines


def axis_cell(label: str, palette: Palette) -> Text:
    return palette.text(f"{label:>{AXIS - 1}}", "muted").append("▕", palette.style("rule"))


def span_words(snapshot: Snapshot, edges: list[int]) -> str:
    """`120 s to now, 1 s a column`."""
    length = units.duration(edges[-1] - edges[0])
    if snapshot.whole_ns is not None and snapshot.progress is not None:
        return f"all of {length}"
    return f"{length} to now, 1 s a column"


def column_edges(snapshot: Snapshot, width: int) -> list[int]:
    """Edges of the columns, which stand still: a file from its begin, else up to the present."""
    each = column_ns(snapshot.whole_ns, width)
    if snapshot.whole_ns is not None and snapshot.progress is not None:
        begin = snapshot.now_ns - round(snapshot.progress * snapshot.whole_ns)
        return [begin + each * x for x in range(width + 1)]
    end = -(-max(snapshot.history[-1].t_ns, snapshot.now_ns) // each) * each
    return [end - each * (width - x) for x in range(width + 1)]


def phase_line(snapshot: Snapshot, edges: list[int], palette: Palette) -> Text:
    width, style = len(edges) - 1, palette.style("rule")
    cells = [("─", style)] * width
    marks = [
        (bisect_right(edges, event.t_ns) - 1, *MARKS[event.kind])
        for event in snapshot.events
        if event.kind in MARKS and event.t_ns <= snapshot.now_ns
    ]
    least_ns = LEAST_STRETCH * (edges[1] - edges[0])
    for kind, where, begin_ns, end_ns in long_phases(snapshot.run, least_ns):
        left = max(0, bisect_right(edges, begin_ns) - 1)
        right = min(width, bisect_left(edges, end_ns))
        free = min((at for at, *_ in marks if left < at < right), default=right) - left
        # A word cut short reads as another one.
        labels = (f"{kind} {where}".strip(), f"{kind} {where.partition(' ')[0]}", kind)
        fits = [one for one in labels if len(one) < (right - left if one == kind else free)]
        for place, sign in enumerate(f"├{fits[0]}" if fits else "", left):
            cells[place] = (sign, palette.style("muted") if place > left else style)
    for at, sign, hue in marks:
        if 0 <= at < width:
            at = next((x for x in range(at, width) if cells[x][0] in "─├"), at)  # not in a name
            cells[at] = (sign, palette.style(hue, bold=True))
    return styled(cells)


def long_phases(run: Run | None, least_ns: int) -> list[Stretch]:
    """The phases of a run over what is too short to be seen between them."""
    if run is None:
        return []
    every = [(run.phases[one.phase], one.span) for one in run.stretches]
    rows = _joined([(p.kind.value, p.where, span.t0_ns, span.t1_ns) for p, span in every])
    rows = _joined(_joined(_without_blinks(rows, least_ns)), least_ns)
    return _joined([row for row in rows if row[3] - row[2] >= least_ns])


def _without_blinks(rows: list[Stretch], least_ns: int) -> list[Stretch]:
    """Without what is too short to be seen between two longer ones of one phase: where a loop logs."""
    blinks = [
        before[:2] == after[:2]
        and end - begin < min(least_ns, *(b - a for *_, a, b in (before, after)))
        for before, (*_, begin, end), after in zip(rows, rows[1:], rows[2:], strict=False)
    ]
    return [row for row, blink in zip(rows, [False, *blinks, False], strict=False) if not blink]


def _joined(rows: list[Stretch], least_ns: int = 0) -> list[Stretch]:
    """Neighbours of one kind and place as one; of those that are shorter, neighbours of one kind."""

    def alike(row: Stretch) -> tuple[str, str]:
        return row[0], row[1] if row[3] - row[2] >= least_ns else ""

    groups = (list(group) for _, group in groupby(rows, key=alike))
    return [(*group[0][:3], group[-1][3]) for group in groups]


class StepStrip(Pane):
    def show(self, snapshot: Snapshot) -> None:
        self.set_class(snapshot.picture is None, "-bare")
        super().show(snapshot)

    def inputs(self, snapshot: Snapshot) -> object:
        picture = snapshot.picture
        return (picture, picture and step_title(picture, snapshot), race(snapshot))

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        picture, palette = snapshot.picture, self.palette
        if picture is None:
            return []
        scale = height >= TIMES_FROM
        of_run = height >= GHOST_FROM and not phrases.has_phases(snapshot.run)
        ghost = drawable(picture, race(snapshot)) if of_run else None
        note = f"{ghost.words}, p: larger" if ghost is not None else "p: larger"
        lines = [rule(step_title(picture, snapshot), note, palette, width)]
        room = height - 1 - scale - (ghost is not None)
        lines += drawn(picture, picture.span, palette, width, room)
        if ghost is not None:
            lines.append(ghost_line(ghost, palette, width, GUTTER))
        if scale:
            lines.append(axis(picture.span, picture.span.t0_ns, palette, width))
        return lines

    def on_click(self, _event: Click) -> None:
        self.app.action_step_picture()


def step_title(picture: StepPicture, snapshot: Snapshot) -> str:
    """`one step`; of one that is not like the mean step `one step of 29 ms, without the long waits`."""
    length = units.duration(picture.span.duration_ns)
    if picture.step is None:
        return f"{length} (no steps are known)"
    times = picture.span.duration_ns / (mean_step_ns(snapshot) or picture.span.duration_ns)
    if abs(times - 1) <= UNLIKE:
        return "one step"
    return (
        f"one step, traced: {length}"
        if times > 1
        else f"one step of {length}, without the long waits"
    )
