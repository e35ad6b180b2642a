"""Where the time went over time: by cause, with what happened marked, and how long the steps took."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from rich.text import Text

from brrrtop.model.snapshot import HistoryPoint, Snapshot
from brrrtop.model.tables import percentile
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.history import Layers, column_ns, columns, layers, level, stacked_area
from brrrtop.tui.renderables.line import clipped, painted, stacked
from brrrtop.tui.widgets.pane import Pane

MS = 1_000_000
AXIS_FROM = 3
"""Height from which a line is spent on the time and on marks."""
STEPS_FROM = 5
"""Height from which a line is spent on the time of the steps."""
LEAST_AXIS = 60
"""Width from which the axis has words on it."""
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
"""Sign and hue of an event on the time axis; other events have none."""


class HistoryGraph(Pane):
    def __init__(self) -> None:
        super().__init__()
        self._layers: dict[int, tuple[HistoryPoint, Layers]] = {}
        """Of the points shown last, by their identity: most are shown again."""

    def inputs(self, snapshot: Snapshot) -> object:
        """The present only as far as it has come to another column."""
        if not snapshot.history:
            return ()
        edges = column_edges(snapshot, max(1, self.content_size.width))
        seen = bisect_left(edges, snapshot.now_ns)
        passed = sum(event.t_ns <= snapshot.now_ns for event in snapshot.events)
        return (snapshot.history, snapshot.events, edges[0] // MS, edges[-1] // MS, seen, passed)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        history = snapshot.history
        if not history:
            return [clipped(Text.styled("no history yet", self.palette.style("muted")), width)]
        edges = column_edges(snapshot, width)
        shown = columns(history, edges, snapshot.now_ns)
        axis, steps = height >= AXIS_FROM, height >= STEPS_FROM
        lines = [time_axis(snapshot, edges, self.palette)] if axis else []
        points = {id(point): point for point in shown if point is not None}
        self._layers = {
            key: self._layers.get(key) or (one, layers(one)) for key, one in points.items()
        }
        area = [None if point is None else self._layers[id(point)][1] for point in shown]
        lines += stacked_area(area, self.palette, height - axis - steps)
        if steps:
            lines.append(step_line(history, edges, self.palette))
        return stacked(lines, width)


def column_edges(snapshot: Snapshot, width: int) -> list[int]:
    """Edges of the columns, which stand still: a file from its begin, else up to the present."""
    each = column_ns(snapshot.whole_ns, width)
    if snapshot.whole_ns is not None and snapshot.progress is not None:
        begin = snapshot.now_ns - round(snapshot.progress * snapshot.whole_ns)
        return [begin + each * x for x in range(width + 1)]
    end = -(-max(snapshot.history[-1].t_ns, snapshot.now_ns) // each) * each
    return [end - each * (width - x) for x in range(width + 1)]


def time_axis(snapshot: Snapshot, edges: list[int], palette: Palette) -> Text:
    """`── history ────◆────k── 120 s, 1 s a column, to now ──`, with marks where things happened."""
    width = len(edges) - 1
    cells = [("-" if palette.ascii else "─", palette.style("rule"))] * width
    marked = set()
    for event in snapshot.events:
        at = bisect_right(edges, event.t_ns) - 1
        if event.kind in MARKS and 0 <= at < width and event.t_ns <= snapshot.now_ns:
            sign, hue = MARKS[event.kind]
            cells[at] = (sign, palette.style(hue, bold=True))
            marked.add(at)
    whole = snapshot.whole_ns is not None and snapshot.progress is not None
    length = units.duration(edges[-1] - edges[0])
    note = f" all of {length} " if whole else f" {length}, 1 s a column, to now "
    labels = ((" history ", "text", range(2, width)), (note, "muted", range(width, 0, -1)))
    for words, hue, places in labels if width > LEAST_AXIS else ():
        begins = (at - 2 - len(words) if hue == "muted" else at for at in places)
        taken = (at for at in begins if at > 0 and not marked & set(range(at, at + len(words))))
        place = next(taken, None)
        if place is not None and place + len(words) <= width:
            style = palette.style(hue, bold=hue == "text")
            cells[place : place + len(words)] = [(sign, style) for sign in words]
    return painted(cells)


def step_line(history: tuple[HistoryPoint, ...], edges: list[int], palette: Palette) -> Text:
    """The slowest step of each column, the longest of all at the top; columns without one are empty."""
    slowest = [0] * (len(edges) - 1)
    for point in history:
        at = bisect_right(edges, point.t_ns - 1) - 1
        if point.steps_ns and 0 <= at < len(slowest):
            slowest[at] = max(slowest[at], *point.steps_ns)
    top = max(slowest) or 1
    steps = sorted(ns for point in history for ns in point.steps_ns)
    usual = percentile(steps, 0.5) if steps else 0
    return painted(
        (
            level(ns / top, palette) if ns else " ",
            palette.style("alarm" if usual and ns > 1.5 * usual else "muted"),
        )
        for ns in slowest
    )
