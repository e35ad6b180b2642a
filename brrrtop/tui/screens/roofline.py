"""The live roofline: kernels under the device's roofs, the whole step as a trail."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType

from brrrtop.kernel_names.readable import short_name
from brrrtop.model.estimate import Estimate, KernelRow, Roofs
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import intensity, whole_step
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.line import clipped, joined, paragraph, rule, under_cursor
from brrrtop.tui.renderables.roofline_plot import plotted, roofline
from brrrtop.tui.screens.kernel import ratio_text
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.kernel_table import Key, key_of
from brrrtop.tui.widgets.pane import Chooser, Pane

KEPT = 60
LISTED_FROM = 24
"""Height from which the largest kernels are listed under the plot."""


class RooflinePane(Chooser, Pane):
    """One of the plotted kernels is chosen: marked in the plot, and its figures below."""

    BINDINGS: ClassVar[list[BindingType]] = [key("enter", "open", "kernel")]

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[KernelRow] = []
        """Plotted, most time first."""
        self._trail: deque[tuple[float, float]] = deque(maxlen=KEPT)

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.estimate is not None and not snapshot.paused:
            point = whole_step(snapshot.estimate.kernels)
            if point is not None and (not self._trail or self._trail[-1] != point):
                self._trail.append(point)
        super().show(snapshot)

    def choices(self) -> Sequence[Key]:
        return [key_of(row) for row in self._rows]

    def action_open(self) -> None:
        if self._rows:
            self.app.open_kernel(self._rows[self.at])

    def draw(self, snapshot: Snapshot, width: int, height: int) -> list[Text]:
        palette = self.palette
        estimate = snapshot.estimate
        lines = [rule("roofline", "", palette, width)]
        if estimate is None or estimate.roofs is None:
            words = "The ceilings of this GPU are not known, so there is no roof to draw."
            if estimate is None:
                words = "Nothing to plot yet."
            return [*lines, palette.text(words, "muted")]
        self._rows = plotted(estimate.kernels)[::-1]
        listed = min(6 if height >= LISTED_FROM else 1, len(self._rows))
        chosen = self._rows[self.at] if self._rows else None
        lines += legend(estimate, palette, width)
        if not self._rows and estimate.roofs.bytes_per_s:
            self._rows = [one for one in estimate.kernels if one.bytes_per_s is not None]
            room = max(1, height - len(lines) - 1)
            return [*lines, *bandwidth(self._rows, self.at, room, estimate.roofs, palette, width)]
        room = height - len(lines) - listed
        trail = list(self._trail)
        lines += roofline(estimate.kernels, estimate.roofs, trail, palette, width, room, chosen)
        lines += figures(self._rows, self.at, listed, palette, width)
        return lines


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
        return paragraph(words, width, palette.style("muted"))
    share = sum(kernel.share for kernel in shown)
    pieces = [
        palette.text(
            f"{len(shown)} of {len(estimate.kernels)} kernels ({units.share(share)} by time) "
            "have known FLOPs and bytes",
            "text",
        ),
        palette.text("◆ all together", "muted"),
        palette.text("· earlier", "muted"),
    ]
    if estimate.roofs:
        pieces.append(palette.text(f"roofs: {estimate.roofs.source}", "muted"))
    return [joined(pieces, width)]


def bandwidth(
    rows: Sequence[KernelRow], at: int, count: int, roofs: Roofs, palette: Palette, width: int
) -> list[Text]:
    """Where no FLOPs are known: how near each kernel is to the memory roof, by time."""
    top = roofs.bytes_per_s or 1.0
    words = f"memory roof {units.rate(top, 'B/s')}, reached by each kernel whose bytes are known"
    lines = [palette.text(words, "text", bold=True)] if rows else []
    first = max(0, at - count + 2)
    for place, kernel in enumerate(rows[first : first + count - 1], first):
        part = (kernel.bytes_per_s or 0.0) / top
        text = Text("▸" if place == at else " ", no_wrap=True)
        text.append(f"{units.share(kernel.share):>5} of kernel time  ", palette.style("muted"))
        text.append_text(meter(part, palette, max(10, width // 3), kernel.side.value))
        text.append(f" {units.share(part):>4} ", palette.style("text", bold=True))
        text.append(f"{units.rate(kernel.bytes_per_s, 'B/s'):>10}  ", palette.style("muted"))
        text.append(short_name(kernel.name), palette.style(kernel.side.value))
        text = clipped(text, width)
        lines.append(under_cursor(text, palette, width) if place == at else text)
    return lines


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
        lines.append(under_cursor(text, palette, width) if place == at else text)
    return lines
