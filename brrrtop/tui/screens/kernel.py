"""One kernel in depth: where it is under the roof, and why we think so."""

from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from brrrtop.kernel_names.readable import fitted
from brrrtop.model.estimate import Estimate, KernelRow, Neighbours, Roofs, Side
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import evidence, intensity, ridge, roof_of
from brrrtop.tui.renderables.line import facts, paragraph
from brrrtop.tui.widgets.kernel_table import key_of
from brrrtop.tui.widgets.pane import Scrolled

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
