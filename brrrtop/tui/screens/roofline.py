"""The live roofline: kernels under the device's roofs, the whole step as a trail."""

from __future__ import annotations

from collections import deque

from rich.text import Text

from brrrtop.kernel_names.readable import short_name
from brrrtop.model.estimate import Estimate
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import intensity, whole_step
from brrrtop.tui.renderables.line import clipped, joined, rule, stacked, wrapped
from brrrtop.tui.renderables.roofline_plot import plotted, roofline
from brrrtop.tui.screens.kernel import ratio_text
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.pane import Pane

KEPT = 60
LISTED_FROM = 24
"""Height from which the largest kernels are listed under the plot."""


class RooflinePane(Pane):
    def __init__(self) -> None:
        super().__init__()
        self._trail: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.estimate is not None and not snapshot.paused:
            point = whole_step(snapshot.estimate.kernels)
            if point is not None and (not self._trail or self._trail[-1] != point):
                self._trail.append(point)
        super().show(snapshot)

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        estimate = snapshot.estimate
        lines = [rule("roofline", "", palette, width)]
        if estimate is None or estimate.roofs is None:
            words = "The ceilings of this GPU are not known, so there is no roof to draw."
            if estimate is None:
                words = "Nothing to plot yet."
            return [*lines, Text.styled(words, palette.style("muted"))]
        listed = min(6, len(plotted(estimate.kernels))) if height >= LISTED_FROM else 0
        lines += legend(estimate, palette, width)
        room = height - len(lines) - listed
        lines += roofline(estimate.kernels, estimate.roofs, list(self._trail), palette, width, room)
        lines += largest(estimate, palette, width, listed)
        return stacked(lines[:height], width)


def legend(estimate: Estimate, palette: Palette, width: int) -> list[Text]:
    """How much of the time is plotted, and where the roofs come from; or what it takes."""
    shown = plotted(estimate.kernels)
    if not shown:
        words = (
            "No kernel is plotted: their FLOPs come with op shapes. A live run records them once it "
            "is steady (not with --no-shapes), or at the key o; torch.profiler by record_shapes=True."
        )
        return [Text.styled(line, palette.style("muted")) for line in wrapped(words, width)]
    share = sum(kernel.share for kernel in shown)
    pieces = [
        Text.styled(
            f"{len(shown)} of {len(estimate.kernels)} kernels, {units.share(share)} of the time, "
            "have known FLOPs and bytes",
            palette.style("text"),
        ),
        Text.styled("◆ all together", palette.style("muted")),
        Text.styled("· earlier", palette.style("muted")),
    ]
    if estimate.roofs:
        pieces.append(Text.styled(f"roofs: {estimate.roofs.source}", palette.style("muted")))
    return [joined(pieces, width)]


def largest(estimate: Estimate, palette: Palette, width: int, count: int) -> list[Text]:
    lines = []
    for kernel in list(reversed(plotted(estimate.kernels)))[:count]:
        text = Text(no_wrap=True)
        text.append(f"{units.share(kernel.share):>5} ", palette.style("text", bold=True))
        text.append(f"{ratio_text(intensity(kernel) or 0):>9} FLOP/B ", palette.style("muted"))
        text.append(f"{units.rate(kernel.flop_per_s, 'FLOP/s'):>14}  ", palette.style("muted"))
        text.append(short_name(kernel.name), palette.style(kernel.side.value))
        lines.append(clipped(text, width))
    return lines


class RooflineView(SubView):
    def body(self) -> RooflinePane:
        return RooflinePane()
