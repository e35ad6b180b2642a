"""Where the time went: over time by cause, with what happened marked; by bucket; in one step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from rich.text import Text
from textual.events import Click

from brrrtop.model.snapshot import HistoryPoint, Snapshot, StepPicture
from brrrtop.model.tables import percentile
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette, letter
from brrrtop.tui.parts import BucketTime, booked
from brrrtop.tui.renderables.history import Layers, column_ns, columns, layers, level, stacked_area
from brrrtop.tui.renderables.line import painted, rows, rule
from brrrtop.tui.renderables.swim_lanes import axis, drawn
from brrrtop.tui.widgets.pane import Fitted, Pane

MS = 1_000_000
TIMES_FROM = 8
"""Height from which a line of the picture of a step is spent on the time."""
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
            return [self.palette.text("no history yet", "muted")]
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
        return lines


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


class AccountPane(Fitted):
    def inputs(self, snapshot: Snapshot) -> object:
        return (snapshot.estimate,)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        estimate = snapshot.estimate
        if estimate is None:
            return []
        parts, steps = booked(estimate.account), estimate.steps_covered
        return legend(parts, self.palette, width, height, steps)


def legend(
    parts: tuple[BucketTime, ...],
    palette: Palette,
    width: int,
    count: int,
    steps: float | None = None,
) -> list[Text]:
    """Buckets by size over at most `count` lines; what does not fit is summed up at the end.

    Times are of one of the window's `steps` on average, as those of kernels are: a window's own grow
    with every burst. Of the window where there are no steps.
    """
    largest = sorted(parts, key=lambda part: -part.share)
    for left_out in range(len(largest) + 1):
        shown = largest[: len(largest) - left_out]
        pieces = [_entry(part, palette, steps, not i) for i, part in enumerate(shown)]
        if left_out:
            share = units.share(sum(part.share for part in largest[len(shown) :]))
            pieces.append(palette.text(f"{left_out} more {share}", "muted"))
        lines = rows(pieces, width, len(pieces))
        if len(lines) <= count:
            return lines
    return []


def _entry(part: BucketTime, palette: Palette, steps: float | None, first: bool) -> Text:
    text = Text.styled(f"{letter(part.bucket)}", palette.filled(part.bucket))
    if not palette.colour:
        text = Text.styled(letter(part.bucket), "bold")
    text.append(f" {phrases.bucket(part.bucket)} ", palette.style("text"))
    text.append(units.share(part.share), palette.style(part.bucket, bold=True))
    spent = units.duration(round(part.spent_ns / steps) if steps else part.spent_ns)
    of_what = " a step" if steps and first else ""
    return text.append(f" {spent}{of_what}", palette.style("muted"))


class StepStrip(Pane):
    def show(self, snapshot: Snapshot) -> None:
        self.set_class(snapshot.picture is None, "-bare")
        super().show(snapshot)

    def inputs(self, snapshot: Snapshot) -> object:
        return (snapshot.picture,)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        picture, palette = snapshot.picture, self.palette
        if picture is None:
            return []
        lines = [rule(step_title(picture), "p: larger", palette, width)]
        scale = height >= TIMES_FROM
        lines += drawn(picture, picture.span, palette, width, height - 1 - scale)
        if scale:
            lines.append(axis(picture.span, picture.span.t0_ns, palette, width))
        return lines

    def on_click(self, _event: Click) -> None:
        self.app.action_step_picture()


def step_title(picture: StepPicture) -> str:
    """`one step, 24.5 ms (3 of 4 in the window)`."""
    length = units.duration(picture.span.duration_ns)
    if picture.step is None:
        return f"{length} (no steps are known)"
    return f"one step, {length} ({picture.step} of {picture.steps} in the window)"
