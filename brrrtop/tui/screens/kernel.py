"""One kernel in depth: where it is under the roof, why we think so, what would help."""

from __future__ import annotations

from rich.text import Text

from brrrtop import units, words
from brrrtop.kernel_names import fitted
from brrrtop.model import KernelRow, Roofs, Side, Snapshot
from brrrtop.tui.look import Look
from brrrtop.tui.parts import intensity, memory_run, ridge, roof_of, sides_by_name
from brrrtop.tui.renderables.bar import bar
from brrrtop.tui.renderables.line import wrapped
from brrrtop.tui.screens.view import SubView
from brrrtop.tui.widgets.kernel_table import key_of
from brrrtop.tui.widgets.scrolled import Scrolled
from brrrtop.tui.wording import SIDES, evidence, is_even, sureness

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


MATMULS = ("gemm", "conv", "attention")
ARITHMETIC = (
    "contiguous tensors and vectorised loads, fewer operations an element, fusing it with others",
    "tensor cores: there is no matmul in it",
)
"""What holds for compute-side kernels that are no matmuls."""
ON_CHIP = (
    "sizes that are multiples of 8 or 64, other tiles, lower precision on tensor cores",
    "fusing it, fewer bytes: it waits for its SM's own memory",
)
"""What holds for products that wait for L1 and shared memory."""


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
        return kernel_lines(self._kernel, snapshot, place, self.look, width)


def kernel_lines(
    kernel: KernelRow, snapshot: Snapshot, place: str, look: Look, width: int
) -> list[Text]:
    """Everything known of one kernel."""
    lines = [
        Text.styled(part, look.style(kernel.side.value, bold=True))
        for part in wrapped(kernel.name, width)
    ]
    side = f"{words.SIDE_LETTERS[kernel.side]}  {SIDES[kernel.side]}"
    if kernel.waits_on_chip:
        side += " (of its SM: L1, shared)"
    sure = f"{sureness(kernel.confidence)} {units.share(kernel.confidence)}"
    if is_even(kernel):
        sure = "and the other as much: compute and memory limit it alike"
    lines.append(Text())
    lines += _fact("side", f"{side}, {sure}", look, width)
    lines += _fact("evidence", f"{kernel.evidence}: {evidence(kernel.evidence)}", look, width)
    lines += _fact("family", kernel.family, look, width)
    times = f"{units.count(kernel.count)} × {units.duration(kernel.mean_ns)}"
    lines += _fact("time", f"{times} = {units.duration(kernel.total_ns)}, {place}", look, width)
    lines += _fact("share", f"{units.share(kernel.share, 1)} of kernel and copy time", look, width)
    lines += _charged(kernel, look, width)
    lines += _rates(kernel, snapshot, look, width)
    lines += _surroundings(kernel, snapshot, look, width)
    helps, wastes = HELPS[kernel.side]
    if kernel.side is Side.COMPUTE and kernel.family not in MATMULS:
        helps, wastes = ARITHMETIC
    if kernel.waits_on_chip:
        helps, wastes = ON_CHIP
    lines.append(Text())
    lines += _fact("helps", helps, look, width)
    lines += _fact("waste", wastes, look, width)
    return lines


def _charged(kernel: KernelRow, look: Look, width: int) -> list[Text]:
    """How the account books this kernel's time."""
    empty = kernel.underfilled_share
    filled = 1 - empty
    other = "memory" if kernel.side is not Side.UNKNOWN else "unknown"
    if kernel.side in (Side.COMM, Side.COPY):
        return []
    parts = [
        ("compute", filled * kernel.compute_share),
        (other, filled * (1 - kernel.compute_share)),
        ("underfilled", empty),
    ]
    text = Text(f"{'booked':>10}  ", look.style("muted"))
    line = Text(no_wrap=True).append_text(text)
    line.append_text(bar(parts, look, min(40, max(10, width - 12))))
    return [line]


def _rates(kernel: KernelRow, snapshot: Snapshot, look: Look, width: int) -> list[Text]:
    """Achieved rates beside the roofs, and the intensity beside the ridge."""
    roofs = snapshot.estimate.roofs if snapshot.estimate else None
    lines = _fact("roof", _roof_words(kernel, roofs), look, width)
    if kernel.flop_per_s is not None or kernel.bytes_per_s is not None:
        lines += _achieved(kernel, roofs, look, width)
    blocks = units.count(kernel.blocks_p50)
    device = snapshot.estimate.device if snapshot.estimate else None
    blocks += f" on {device.sm_count} SMs" if device and device.sm_count else ""
    lines += _fact("blocks", blocks, look, width)
    if roofs:
        lines += _fact("roofs from", roofs.source, look, width)
    return lines


def _achieved(kernel: KernelRow, roofs: Roofs | None, look: Look, width: int) -> list[Text]:
    """FLOPs, bytes and the ratio of the two, each beside its ceiling."""
    precision = kernel.precision or "precision not known"
    top = roof_of(kernel, roofs)
    flops = f"{units.rate(kernel.flop_per_s, 'FLOP/s')} ({precision}"
    flops += f", roof {units.rate(top, 'FLOP/s')})" if top else ")"
    lines = _fact("arithmetic", flops, look, width)
    moved = units.rate(kernel.bytes_per_s, "B/s")
    if roofs and roofs.bytes_per_s:
        moved += f" (roof {units.rate(roofs.bytes_per_s, 'B/s')})"
    lines += _fact("traffic", moved, look, width)
    flop_per_byte, edge = intensity(kernel), ridge(kernel, roofs)
    ratio = (
        units.UNMEASURED if flop_per_byte is None else f"{ratio_text(flop_per_byte)} FLOP per byte"
    )
    ratio += f", ridge at {ratio_text(edge)}" if edge else ""
    return lines + _fact("intensity", ratio, look, width)


def ratio_text(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _surroundings(kernel: KernelRow, snapshot: Snapshot, look: Look, width: int) -> list[Text]:
    """What runs beside it on its stream, itself marked, and the run it could be fused in."""
    estimate = snapshot.estimate
    near = estimate.neighbours.get(kernel.name) if estimate else None
    if estimate is None or near is None:
        return []
    place = "beside:"
    if near.step_place is not None:
        place = f"typically {units.share(near.step_place)} into the step, beside:"
    lines = [Text(), *_fact("runs", place, look, width)]
    sides = sides_by_name(estimate.kernels)
    for index, name in enumerate(near.names):
        side = sides.get(name, Side.UNKNOWN)
        line = Text(no_wrap=True)
        line.append(f"{'▶' if index == near.at else '':>10}  ", look.style("good", bold=True))
        line.append(words.SIDE_LETTERS[side], look.filled(side.value))
        line.append(f" {fitted(name, max(10, width - 14))}", look.style(side.value))
        lines.append(line)
    fusable = sides_by_name(row for row in estimate.kernels if not row.waits_on_chip)
    first, last = memory_run(near, fusable)
    if last - first >= 2:
        says = (
            f"{last - first} of these in a row are on the memory side: fusing spares their traffic"
        )
        lines += _fact("chain", says, look, width)
    return lines


def _roof_words(kernel: KernelRow, roofs: Roofs | None) -> str:
    if kernel.roof_share is None:
        if roofs and roofs.bytes_per_s and (kernel.bytes_per_s or 0.0) > roofs.bytes_per_s:
            return f"{units.UNMEASURED}  cached: its shapes count more bytes than DRAM could move"
        why = "its FLOPs and bytes are not known; a live run records op shapes at the key o"
        if kernel.flop_per_s is not None or kernel.bytes_per_s is not None:
            why = "no ceiling is known for what limits it"
        return f"{units.UNMEASURED}  {why}"
    ceiling = "its arithmetic's ceiling" if kernel.waits_on_chip else "the ceiling of its side"
    return f"{units.share(kernel.roof_share)} of {ceiling}"


def _fact(label: str, says: str, look: Look, width: int) -> list[Text]:
    lines = []
    for i, line in enumerate(wrapped(says, max(10, width - 12))):
        text = Text(no_wrap=True).append(f"{label if not i else '':>10}  ", look.style("muted"))
        lines.append(text.append(line, look.style("text")))
    return lines


class KernelView(SubView):
    def __init__(self, kernel: KernelRow) -> None:
        super().__init__()
        self._kernel = kernel

    def body(self) -> KernelPane:
        return KernelPane(self._kernel)
