"""One kernel in depth: where it is under the roof, why we think so, what would help."""

from __future__ import annotations

from rich.text import Text

from brrrtop.kernel_names.readable import fitted
from brrrtop.model.estimate import KernelRow, Roofs, Side
from brrrtop.model.snapshot import Snapshot
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import intensity, memory_run, ridge, roof_of, sides_by_name
from brrrtop.tui.renderables.line import wrapped
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.kernel_table import key_of
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.tui.wording import SIDES, evidence, sureness

HELPS = {
    Side.COMPUTE: (
        "lower precision on tensor cores, better shapes, a faster GPU",
        "fusing it, less Python",
    ),
    Side.MEMORY: (
        "fusing it with its neighbours, lower precision, channels-last",
        "a GPU with more FLOPS, TF32",
    ),
    Side.UNDERFILLED: (
        "larger batches, or several small ones in one launch; CUDA graphs for the launches",
        "a faster GPU: it would be even emptier",
    ),
    Side.COMM: (
        "overlapping it with compute, larger buckets, fewer ranks in a group",
        "anything on the compute side while it waits for other ranks",
    ),
    Side.COPY: (
        "pinned memory and non_blocking=True, copying on another stream, copying less",
        "faster kernels while they wait for the copy",
    ),
    Side.UNKNOWN: ("more evidence: shapes in the trace, or hardware counters", "guessing"),
}


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
    """Everything known of one kernel."""
    lines = [
        Text.styled(part, palette.style(kernel.side.value, bold=True))
        for part in wrapped(kernel.name, width)
    ]
    side = f"{phrases.SIDE_LETTERS[kernel.side]}  {SIDES[kernel.side]}"
    sure = f"{sureness(kernel.confidence)} {units.share(kernel.confidence)}"
    lines.append(Text())
    lines += _fact("side", f"{side}, {sure}", palette, width)
    lines += _fact("evidence", f"{kernel.evidence}: {evidence(kernel.evidence)}", palette, width)
    lines += _fact("family", kernel.family, palette, width)
    times = f"{units.count(kernel.count)} × {units.duration(kernel.mean_ns)}"
    lines += _fact("time", f"{times} = {units.duration(kernel.total_ns)}, {place}", palette, width)
    lines += _fact(
        "share", f"{units.share(kernel.share, 1)} of kernel and copy time", palette, width
    )
    lines += _rates(kernel, snapshot, palette, width)
    lines += _surroundings(kernel, snapshot, palette, width)
    helps, wastes = HELPS[kernel.side]
    lines.append(Text())
    lines += _fact("helps", helps, palette, width)
    lines += _fact("waste", wastes, palette, width)
    return lines


def _rates(kernel: KernelRow, snapshot: Snapshot, palette: Palette, width: int) -> list[Text]:
    """Achieved rates beside the roofs, and the intensity beside the ridge."""
    roofs = snapshot.estimate.roofs if snapshot.estimate else None
    lines = _fact("roof", _roof_words(kernel), palette, width)
    if kernel.flop_per_s is not None or kernel.bytes_per_s is not None:
        lines += _roof_lines(kernel, roofs, palette, width)
    blocks = units.count(kernel.blocks_p50)
    device = snapshot.estimate.device if snapshot.estimate else None
    blocks += f" on {device.sm_count} SMs" if device and device.sm_count else ""
    lines += _fact("blocks", blocks, palette, width)
    if roofs:
        lines += _fact("roofs from", roofs.source, palette, width)
    return lines


def _roof_lines(kernel: KernelRow, roofs: Roofs | None, palette: Palette, width: int) -> list[Text]:
    """FLOPs, bytes and the ratio of the two, each beside its ceiling."""
    precision = kernel.precision or "precision not known"
    top = roof_of(kernel, roofs)
    flops = f"{units.rate(kernel.flop_per_s, 'FLOP/s')} ({precision}"
    flops += f", roof {units.rate(top, 'FLOP/s')})" if top else ")"
    lines = _fact("arithmetic", flops, palette, width)
    moved = units.rate(kernel.bytes_per_s, "B/s")
    if roofs and roofs.bytes_per_s:
        moved += f" (roof {units.rate(roofs.bytes_per_s, 'B/s')})"
    lines += _fact("traffic", moved, palette, width)
    flop_per_byte, edge = intensity(kernel), ridge(kernel, roofs)
    ratio = (
        units.UNMEASURED if flop_per_byte is None else f"{ratio_text(flop_per_byte)} FLOP per byte"
    )
    ratio += f", ridge at {ratio_text(edge)}" if edge else ""
    return lines + _fact("intensity", ratio, palette, width)


def ratio_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _surroundings(
    kernel: KernelRow, snapshot: Snapshot, palette: Palette, width: int
) -> list[Text]:
    """What runs beside it on its stream, itself marked, and the run it could be fused in."""
    estimate = snapshot.estimate
    near = estimate.neighbours.get(kernel.name) if estimate else None
    if estimate is None or near is None:
        return []
    place = "beside:"
    if near.step_place is not None:
        place = f"typically {units.share(near.step_place)} into the step, beside:"
    lines = [Text(), *_fact("runs", place, palette, width)]
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
        says = (
            f"{last - first} of these in a row are on the memory side: fusing spares their traffic"
        )
        lines += _fact("chain", says, palette, width)
    return lines


def _roof_words(kernel: KernelRow) -> str:
    if kernel.roof_share is None:
        return f"{units.UNMEASURED}  {kernel.roof_share_why or 'nothing tells it'}"
    ceiling = "memory bandwidth" if kernel.side is Side.MEMORY else "peak of its arithmetic"
    return f"{units.share(kernel.roof_share)} of the {ceiling}"


def _fact(label: str, says: str, palette: Palette, width: int) -> list[Text]:
    lines = []
    for i, line in enumerate(wrapped(says, max(10, width - 12))):
        text = Text(no_wrap=True).append(f"{label if not i else '':>10}  ", palette.style("muted"))
        lines.append(text.append(line, palette.style("text")))
    return lines


class KernelView(SubView):
    def __init__(self, kernel: KernelRow) -> None:
        super().__init__()
        self._kernel = kernel

    def body(self) -> KernelPane:
        return KernelPane(self._kernel)
