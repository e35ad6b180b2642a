"""The live roofline: kernels under the device's roofs, the whole step as a trail."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from brrrtop.kernel_names.readable import short_name
from brrrtop.model.estimate import Estimate, KernelRow
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import intensity, whole_step
from brrrtop.tui.renderables.line import clipped, joined, rule, stacked, wrapped
from brrrtop.tui.renderables.roofline_plot import plotted, roofline
from brrrtop.tui.screens.kernel import ratio_text
from brrrtop.tui.screens.view import KEYS, SubView
from brrrtop.tui.widgets.kernel_table import KernelTable
from brrrtop.tui.widgets.pane import Pane

KEPT = 60
LISTED_FROM = 24
"""Height from which the largest kernels are listed under the plot."""


class RooflinePane(Pane, can_focus=True):
    """One of the plotted kernels is chosen: marked in the plot, and its figures below."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "choose(-1)", show=False),
        Binding("down,j", "choose(1)", show=False),
        Binding("home,g", "choose(-1000)", show=False),
        Binding("end,G", "choose(1000)", show=False),
        Binding("enter", "open", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[KernelRow] = []
        self._chosen: tuple[str, str] | None = None
        self._trail: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.estimate is not None and not snapshot.paused:
            point = whole_step(snapshot.estimate.kernels)
            if point is not None and (not self._trail or self._trail[-1] != point):
                self._trail.append(point)
        super().show(snapshot)

    @property
    def at(self) -> int:
        """Place of the chosen kernel by time; the first where it has gone."""
        keys = [_key(row) for row in self._rows]
        return keys.index(self._chosen) if self._chosen in keys else 0

    def action_choose(self, by: int) -> None:
        if self._rows:
            self._chosen = _key(self._rows[min(max(self.at + by, 0), len(self._rows) - 1)])
            self.redraw()

    def action_open(self) -> None:
        if self._rows:
            self.post_message(KernelTable.Opened(self._rows[self.at]))

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        estimate = snapshot.estimate
        lines = [rule("roofline", "", palette, width)]
        if estimate is None or estimate.roofs is None:
            words = "The ceilings of this GPU are not known, so there is no roof to draw."
            if estimate is None:
                words = "Nothing to plot yet."
            return [*lines, Text.styled(words, palette.style("muted"))]
        self._rows = plotted(estimate.kernels)[::-1]
        listed = min(6 if height >= LISTED_FROM else 1, len(self._rows))
        chosen = self._rows[self.at] if self._rows else None
        lines += legend(estimate, palette, width)
        room = height - len(lines) - listed
        trail = list(self._trail)
        lines += roofline(estimate.kernels, estimate.roofs, trail, palette, width, room, chosen)
        lines += figures(self._rows, self.at, listed, palette, width)
        return stacked(lines[:height], width)


def legend(estimate: Estimate, palette: Palette, width: int) -> list[Text]:
    """How much of the time is plotted, and where the roofs come from; or what it takes."""
    shown = plotted(estimate.kernels)
    if not shown:
        words = (
            "No kernel is plotted: op shapes are recorded, but none of a product, a convolution or "
            "attention, whose FLOPs they would give."
            if any("L2" in kernel.evidence for kernel in estimate.kernels)
            else "No kernel is plotted: their FLOPs come with op shapes. A live run records them once it "
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


def _key(kernel: KernelRow) -> tuple[str, str]:
    return kernel.name, kernel.side.value


def figures(
    rows: Sequence[KernelRow], at: int, count: int, palette: Palette, width: int
) -> list[Text]:
    """Share, intensity, rate and name of `count` kernels by time, the chosen one among them."""
    lines = []
    first = max(0, at - count + 1)
    for place, kernel in enumerate(rows[first : first + count], first):
        text = Text("▸" if place == at else " ", no_wrap=True)
        text.append(f"{units.share(kernel.share):>5} ", palette.style("text", bold=True))
        text.append(f"{ratio_text(intensity(kernel) or 0):>9} FLOP/B ", palette.style("muted"))
        text.append(f"{units.rate(kernel.flop_per_s, 'FLOP/s'):>14}  ", palette.style("muted"))
        text.append(short_name(kernel.name), palette.style(kernel.side.value))
        text = clipped(text, width)
        if place == at:
            text.append(" " * max(0, width - text.cell_len))
            text.stylize(palette.cursor)
        lines.append(text)
    return lines


class RooflineView(SubView):
    KEYS = (("↑↓", "choose", "focused.choose(1)"), ("enter", "kernel", "focused.open"), *KEYS)

    def body(self) -> RooflinePane:
        return RooflinePane()

    def on_mount(self) -> None:
        self.query_one(RooflinePane).focus()
