"""One step as a picture, small: the lanes of host and GPU on the main screen."""

from __future__ import annotations

from rich.text import Text
from textual.events import Click
from textual.message import Message

from brrrtop.model.snapshot import Snapshot, StepPicture
from brrrtop.text import units
from brrrtop.tui.renderables.line import rule, stacked
from brrrtop.tui.renderables.swim_lanes import axis, drawn
from brrrtop.tui.widgets.pane import Pane

AXIS_FROM = 8
"""Height from which a line is spent on the time."""


class StepStrip(Pane):
    class Opened(Message):
        """The picture is wanted large."""

    def show(self, snapshot: Snapshot) -> None:
        self.set_class(snapshot.picture is None, "-bare")
        super().show(snapshot)

    def inputs(self, snapshot: Snapshot) -> object:
        return (snapshot.picture,)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        picture, palette = snapshot.picture, self.palette
        if picture is None:
            return []
        lines = [rule(title(picture), "p: larger", palette, width)]
        scale = height >= AXIS_FROM
        lines += drawn(picture, picture.span, palette, width, height - 1 - scale)
        if scale:
            lines.append(axis(picture.span, picture.span.t0_ns, palette, width))
        return stacked(lines[:height], width)

    def on_click(self, _event: Click) -> None:
        self.post_message(self.Opened())


def title(picture: StepPicture) -> str:
    """`one step, 24.5 ms (3 of 4 in the window)`."""
    length = units.duration(picture.span.duration_ns)
    if picture.step is None:
        return f"{length} (no steps are known)"
    return f"one step, {length} ({picture.step} of {picture.steps} in the window)"
