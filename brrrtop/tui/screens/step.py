"""One step as a picture, large: zoom, pan, a cursor that reads the bars, and the step after an edit."""

from typing import ClassVar

import numpy as np
from rich.text import Text
from textual import events
from textual.binding import BindingType

from brrrtop.kernel_names.readable import short_name
from brrrtop.model.snapshot import Lane, Snapshot, StepPicture
from brrrtop.model.tables import Span
from brrrtop.text import causes, units
from brrrtop.tui.palette import MARKS, Palette
from brrrtop.tui.renderables.line import rows as flowed
from brrrtop.tui.renderables.line import rule
from brrrtop.tui.renderables.swim_lanes import GUTTER, HOST_LANES, axis, drawn, kinds_shown, lanes
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.pane import Pane
from brrrtop.tui.widgets.time_spent import step_title

CLOSEST_NS = 200
"""A picture is not zoomed in further than to this time a cell."""
MOST_GAPS = 6
LEAST_LANES = 14
"""Lines that the picture has before gaps are listed below it."""
WORDS = {"annotation": "named range", "host": "CUDA call"}


_CURSOR = "in one step: the cursor, which reads the bars"
_ZOOM = "in one step: zoom"
_GAP = "in one step: the next and the previous longest gap"
_PAN = "in one step: pan"


class StepPane(Pane, can_focus=True):
    """Draws the newest picture until a key is pressed: then that one stands still, to be read."""

    BINDINGS: ClassVar[list[BindingType]] = [
        key("right", "move(1)", "cursor", _CURSOR, sign="←→"),
        key("left", "move(-1)", "", _CURSOR),
        key("plus,equals_sign,up,k", "zoom(0.5)", "zoom", _ZOOM, sign="+ -"),
        key("minus,down,j", "zoom(2.0)", "", _ZOOM),
        key("g", "gap(1)", "next gap", _GAP),
        key("G", "gap(-1)", "", _GAP),
        key("shift+left", "pan(-0.5)", "", _PAN),
        key("shift+right", "pan(0.5)", "", _PAN),
        key("0,home", "whole", "whole step", "in one step: all of it"),
        key("f", "follow", "follow", "in one step: follow the run again"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._kept: StepPicture | None = None
        """The picture that stands still; None: the newest is shown."""
        self._view: Span | None = None
        self._at_ns: int | None = None
        """Where the cursor is."""

    @property
    def picture(self) -> StepPicture | None:
        return self._kept or (self.snapshot.picture if self.snapshot else None)

    @property
    def view(self) -> Span:
        assert self.picture is not None
        return self._view or self.picture.span

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette, picture = self.palette, self.picture
        if picture is None:
            words = "No GPU activity has been traced yet, so there is no step to draw."
            head = rule("one step", "", palette, width)
            return [head, palette.text(words, "muted")]
        view = self.view
        note = "stands still, f: follow" if self._kept is not None else ""
        if view != picture.span:
            note = f"{units.duration(view.duration_ns)} of it{', ' if note else ''}{note}"
        below = [self._cursor_line(width), axis(view, picture.span.t0_ns, palette, width)]
        below += [*self._legend(picture, width), Text()]
        below += self._under_cursor(picture, width)
        lines = [rule(step_title(picture, snapshot), note, palette, width)]
        room = max(3, height - 1 - len(below))
        free = 0 if self._at_ns is not None else max(0, min(MOST_GAPS + 1, room - LEAST_LANES))
        listed = longest_gaps(picture, palette, free)
        lines += drawn(picture, view, palette, width, room - len(listed))
        return [*lines, *below, *listed]

    def _cursor_line(self, width: int) -> Text:
        if self._at_ns is None:
            return Text()
        room = self._room(width)
        cell = int((self._at_ns - self.view.t0_ns) / self.view.duration_ns * room)
        blank = " " * (GUTTER + min(room - 1, max(0, cell)))
        return Text(blank).append("▲", self.palette.style("text", bold=True))

    def _room(self, width: int) -> int:
        return max(1, width - GUTTER)

    def _legend(self, picture: StepPicture, width: int) -> list[Text]:
        palette = self.palette
        pieces = []
        for kind in kinds_shown(lanes(picture, self.view, self._room(width))):
            if kind not in MARKS:
                continue
            sign = palette.text(palette.texture(kind), kind)
            words = WORDS.get(kind) or causes.name(kind)
            pieces.append(sign.append(f" {words}", palette.style("text")))
        return flowed(pieces, width, 2)

    def _under_cursor(self, picture: StepPicture, width: int) -> list[Text]:
        muted = self.palette.style("muted")
        if self._at_ns is None:
            keys = "←→ cursor, ↑↓ or + - zoom, shift and ←→ pan, g next gap, 0 all of it"
            return [Text.styled(self.palette.keys(keys), muted)]
        at_ns = self._at_ns
        head = f"at {units.duration(at_ns - picture.span.t0_ns)} of the step"
        reach_ns = self.view.duration_ns // (2 * self._room(width)) + 1
        bars = (self._bar_at(picture, lane, at_ns, reach_ns) for lane in picture.lanes)
        return [Text.styled(head, muted), *(bar for bar in bars if bar is not None)]

    def _bar_at(self, picture: StepPicture, lane: Lane, at_ns: int, reach_ns: int) -> Text | None:
        bars = lane.bars
        near = np.flatnonzero(
            (bars.starts_ns <= at_ns + reach_ns) & (bars.ends_ns > at_ns - reach_ns)
        )
        if not len(near):
            return None
        lengths = bars.ends_ns[near] - bars.starts_ns[near]
        row = int(near[lengths.argmax()])
        kind = picture.kinds[int(bars.kinds[row])]
        number = int(bars.name_ids[row])
        name = picture.names[number] if number >= 0 else causes.meaning(kind)
        if lane.name not in HOST_LANES:
            name = short_name(name)
        palette, muted = self.palette, self.palette.style("muted")
        length = f"{units.duration(int(lengths.max())):>9}  "
        words = WORDS.get(kind) or causes.name(kind)
        text = Text.styled(f"{lane.name:<14}", muted)
        text.append(length, palette.style("text", bold=True))
        text.append(f"{words}  ", palette.style(kind, bold=True))
        text.append(name, palette.style("text"))
        launched = int(bars.launched_ns[row])
        if launched >= 0:
            early = units.duration(int(bars.starts_ns[row]) - launched)
            text.append(f"  launched {early} earlier", muted)
        if len(near) > 1:
            text.append(f"  and {len(near) - 1} more here", muted)
        return text

    def _hold(self) -> StepPicture | None:
        if self._kept is None:
            self._kept = self.picture
        return self._kept

    def action_move(self, by: int) -> None:
        if self._hold() is None:
            return
        view, room = self.view, self._room(self.content_size.width)
        if self._at_ns is None:
            self._at_ns = (view.t0_ns + view.t1_ns) // 2
        else:
            each_ns = max(1, view.duration_ns // room)
            self._put_cursor(self._at_ns + by * each_ns)
        self.redraw()

    def _put_cursor(self, at_ns: int) -> None:
        assert self.picture is not None
        span = self.picture.span
        self._at_ns = min(max(at_ns, span.t0_ns), span.t1_ns - 1)
        if not self.view.t0_ns <= self._at_ns < self.view.t1_ns:
            self._show(self._at_ns - self.view.duration_ns // 2, self.view.duration_ns)

    def _show(self, begin_ns: int, length_ns: int) -> None:
        """A part of the step, moved so that it lies in it."""
        assert self.picture is not None
        span = self.picture.span
        least = min(span.duration_ns, CLOSEST_NS * self._room(self.content_size.width))
        length = min(max(length_ns, least), span.duration_ns)
        begin = min(max(begin_ns, span.t0_ns), span.t1_ns - length)
        self._view = Span(begin, begin + length)

    def action_pan(self, by: float) -> None:
        if self._hold() is not None:
            view = self.view
            self._show(view.t0_ns + round(by * view.duration_ns), view.duration_ns)
            if self._at_ns is not None:
                self._at_ns = min(max(self._at_ns, self.view.t0_ns), self.view.t1_ns - 1)
            self.redraw()

    def action_zoom(self, by: float) -> None:
        if self._hold() is None:
            return
        view = self.view
        centre = (view.t0_ns + view.t1_ns) // 2 if self._at_ns is None else self._at_ns
        length = round(view.duration_ns * by)
        self._show(round(centre - (centre - view.t0_ns) * by), length)
        self.redraw()

    def action_gap(self, by: int) -> None:
        """The cursor into the next longest gap, or back to one that is longer; the view around it."""
        picture = self._hold()
        lane = picture.lane("gaps") if picture else None
        if lane is None:
            return
        starts, ends = lane.bars.starts_ns, lane.bars.ends_ns
        order = np.argsort(starts - ends, kind="stable")
        place = -1 if by > 0 else 1
        if self._at_ns is not None:
            inside = np.flatnonzero((starts[order] <= self._at_ns) & (ends[order] > self._at_ns))
            place = int(inside[0]) if len(inside) else place
        chosen = int(order[min(max(place + by, 0), len(order) - 1)])
        self._put_cursor(int(starts[chosen] + ends[chosen]) // 2)
        self.redraw()

    def action_whole(self) -> None:
        self._view = None
        self.redraw()

    def action_follow(self) -> None:
        self._kept = self._view = self._at_ns = None
        self.redraw()

    def on_click(self, event: events.Click) -> None:
        if self._hold() is not None and event.x >= GUTTER:
            part = (event.x - GUTTER + 0.5) / self._room(self.content_size.width)
            self._put_cursor(self.view.t0_ns + round(part * self.view.duration_ns))
            self.redraw()

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.action_zoom(0.5)

    def on_mouse_scroll_down(self, _event: events.MouseScrollDown) -> None:
        self.action_zoom(2.0)


def longest_gaps(picture: StepPicture, palette: Palette, height: int) -> list[Text]:
    """Where the GPU idles longest, why, and what ran before and after; at most `height` lines."""
    lane, kernels = picture.lane("gaps"), picture.lane("kernels")
    if lane is None or kernels is None or height < 2:
        return []
    bars, work = lane.bars, kernels.bars
    lines = [palette.text("longest gaps", "text", bold=True)]
    for row in np.argsort(bars.starts_ns - bars.ends_ns, kind="stable")[: height - 1].tolist():
        start, end = int(bars.starts_ns[row]), int(bars.ends_ns[row])
        kind = picture.kinds[int(bars.kinds[row])]
        text = palette.text(f"{units.duration(end - start):>9}  ", "text", bold=True)
        text.append(f"{causes.name(kind):<20}", palette.style(kind, bold=True))
        at = units.duration(max(0, start - picture.span.t0_ns))
        text.append(f"at {at:<9}", palette.style("muted"))
        before = np.flatnonzero(work.ends_ns <= start)
        after = np.flatnonzero(work.starts_ns >= end)
        if len(before) and len(after):
            last = before[work.ends_ns[before].argmax()]
            names = [picture.names[int(work.name_ids[i])] for i in (last, after[0])]
            between = "  →  ".join(short_name(name) for name in names)
            text.append(f" {between}", palette.style("muted"))
        lines.append(text)
    return lines
