"""One kernel in depth: where it is under the roof, and why we think so. And the live roofline: kernels under
the device's roofs, the whole step as a trail.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual.binding import BindingType

from brrrtop.kernel_names.readable import fitted, short_name
from brrrtop.model.estimate import Estimate, KernelRow, Neighbours, Roofs, Side
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import evidence, intensity, ridge, roof_of, whole_step
from brrrtop.tui.renderables.line import (
    clipped,
    facts,
    joined,
    meter,
    paragraph,
    rule,
    under_cursor,
)
from brrrtop.tui.renderables.roofline_plot import plotted, roofline
from brrrtop.tui.themed import key
from brrrtop.tui.widgets.kernel_table import Key, key_of
from brrrtop.tui.widgets.pane import Chooser, Pane, Scrolled

LABEL = 10


class KernelPane(Scrolled):
    topic = "kernel"

    def __init__(self, kernel: KernelRow) -> None:
        super().__init__()
        self._kernel = kernel

    def content(self, snapshot: Snapshot, width: int) -> list[Text]:
        estimate = snapshot.estimate
        kernels = estimate.kernels if estimate else ()
        gone = True
        for rank, kernel in enumerate(kernels, 1):
            if key_of(kernel) == key_of(self._kernel):
                self._kernel, gone = kernel, False
                place = f"number {rank} of {len(kernels)} by time"
        if gone:
            place = "not in this window; as last seen"
        return kernel_lines(self._kernel, snapshot, place, self.palette, width)


def kernel_lines(
    kernel: KernelRow, snapshot: Snapshot, place: str, palette: Palette, width: int
) -> list[Text]:
    times = f"{units.count(kernel.count)} × {units.duration(kernel.mean_ns)}"
    known = (
        ("bound", f"{phrases.SIDES[kernel.side]}, {units.share(kernel.confidence)} sure"),
        ("evidence", f"{kernel.evidence}: {evidence(kernel.evidence)}"),
        ("family", kernel.family),
        ("time", f"{times} = {units.duration(kernel.total_ns)}, {place}"),
        ("share", f"{units.share(kernel.share, 1)} of kernel and copy time"),
        *_rates(kernel, snapshot.estimate),
    )
    return [
        *paragraph(kernel.name, width, palette.style(kernel.side.value, bold=True)),
        Text(),
        *facts(known, LABEL, palette, width),
        *_surroundings(kernel, snapshot.estimate, palette, width),
    ]


def _rates(kernel: KernelRow, estimate: Estimate | None) -> Iterator[tuple[str, str]]:
    roofs = estimate.roofs if estimate else None
    yield "roof", _roof_words(kernel)
    if kernel.flop_per_s is not None or kernel.bytes_per_s is not None:
        yield from _roof_facts(kernel, roofs)
    device = estimate.device if estimate else None
    processors = f" on {device.sm_count} SMs" if device and device.sm_count else ""
    yield "blocks", f"{units.count(kernel.blocks_p50)}{processors}"
    if roofs:
        yield "roofs from", roofs.source


def _roof_facts(kernel: KernelRow, roofs: Roofs | None) -> Iterator[tuple[str, str]]:
    top = roof_of(kernel, roofs)
    roof = f", roof {units.rate(top, 'FLOP/s')}" if top else ""
    flops = units.rate(kernel.flop_per_s, "FLOP/s")
    yield "arithmetic", f"{flops} ({kernel.precision or 'precision not known'}{roof})"
    known = roofs is not None and roofs.bytes_per_s
    roof = f" (roof {units.rate(known, 'B/s')})" if known else ""
    yield "traffic", f"{units.rate(kernel.bytes_per_s, 'B/s')}{roof}"
    flop_per_byte, edge = intensity(kernel), ridge(kernel, roofs)
    ratio = (
        units.UNMEASURED if flop_per_byte is None else f"{ratio_text(flop_per_byte)} FLOP per byte"
    )
    yield "intensity", ratio + (f", ridge at {ratio_text(edge)}" if edge else "")


def ratio_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _surroundings(
    kernel: KernelRow, estimate: Estimate | None, palette: Palette, width: int
) -> list[Text]:
    """What runs beside it on its stream, itself marked, and the run it could be fused in."""
    near = estimate.neighbours.get(kernel.name) if estimate else None
    if estimate is None or near is None:
        return []
    place = "beside:"
    if near.step_place is not None:
        place = f"typically {units.share(near.step_place)} into the step, beside:"
    lines = [Text(), *facts([("runs", place)], LABEL, palette, width)]
    sides = sides_by_name(estimate.kernels)
    for index, name in enumerate(near.names):
        side = sides.get(name, Side.UNKNOWN)
        line = Text(no_wrap=True)
        line.append(f"{'▶' if index == near.at else '':>10}  ", palette.style("good", bold=True))
        line.append(phrases.SIDE_LETTERS[side], palette.filled(side.value))
        line.append(f" {fitted(name, max(10, width - 14))}", palette.style(side.value))
        lines.append(line)
    first, last = memory_run(near, sides)
    if last - first >= 2:
        message = (
            f"{last - first} of these in a row are on the memory side: fusing spares their traffic"
        )
        lines += facts([("chain", message)], LABEL, palette, width)
    return lines


def _roof_words(kernel: KernelRow) -> str:
    if kernel.roof_share is None:
        return f"{units.UNMEASURED}  {kernel.roof_share_why or 'nothing tells it'}"
    ceiling = "memory bandwidth" if kernel.side is Side.MEMORY else "peak of its arithmetic"
    return f"{units.share(kernel.roof_share)} of the {ceiling}"


def sides_by_name(kernels: Iterable[KernelRow]) -> dict[str, Side]:
    sides: dict[str, Side] = {}
    for kernel in kernels:
        sides.setdefault(kernel.name, kernel.side)
    return sides


def memory_run(near: Neighbours, sides: Mapping[str, Side]) -> tuple[int, int]:
    """First and past-last place of the memory-side run that the kernel is in; equal without one."""
    first = last = near.at
    while last < len(near.names) and sides.get(near.names[last]) is Side.MEMORY:
        last += 1
    while last > near.at and first > 0 and sides.get(near.names[first - 1]) is Side.MEMORY:
        first -= 1
    return first, last


KEPT = 60
LISTED_FROM = 24
"""One kernel in depth: where it is under the roof, and why we think so. And the live roofline: kernels under
the device's roofs, the whole step as a trail.
"""


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
