"""FLOP/s against FLOP per byte, both logarithmic: roofs as lines, kernels as their letters.

A kernel with a tenth of the time or more is three cells wide, one with little is a letter without a
field. The roof of memory is drawn in braille dots, four to the height of a cell; in ASCII in strokes.
"""

import math
from collections.abc import Sequence

from msgspec import Struct
from rich.style import Style
from rich.text import Text

from brrrtop.model.estimate import KernelRow, Roofs
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.parts import intensity
from brrrtop.tui.renderables.line import styled

X_LOW, X_HIGH = -2.0, 4.0
"""Powers of ten of FLOP per byte: from copies with a little arithmetic to the largest matmuls."""
DECADES = 4.5
"""Height of the plot below a little above the highest roof."""
WIDE, FIELD = 0.10, 0.02
"""Shares of kernel time from which a mark is three cells wide, and from which it has a field."""
BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of the dots of a cell, by row and column."""
GUTTER = 13
"""Cells for the labels of the vertical axis."""


class Frame(Struct, frozen=True):
    width: int
    height: int
    y_high: float
    """Power of ten of the upper edge."""

    def x(self, flop_per_byte: float) -> int:
        place = (math.log10(flop_per_byte) - X_LOW) / (X_HIGH - X_LOW)
        return round(place * (self.width - 1))

    def y(self, flop_per_s: float) -> int:
        place = (self.y_high - math.log10(flop_per_s)) / DECADES
        return round(place * (self.height - 1))

    def intensity(self, x: int) -> float:
        return float(10 ** (X_LOW + (X_HIGH - X_LOW) * x / max(1, self.width - 1)))

    def holds(self, x: int, y: int) -> bool:
        return 0 <= x < self.width and 0 <= y < self.height


Canvas = dict[tuple[int, int], tuple[str, Style]]


def plotted(kernels: Sequence[KernelRow]) -> list[KernelRow]:
    """Kernels whose FLOP and byte rates are both known, least time first."""
    known = [k for k in kernels if k.flop_per_s and intensity(k)]
    return sorted(known, key=lambda kernel: kernel.total_ns)


def roofline(
    kernels: Sequence[KernelRow],
    roofs: Roofs,
    trail: Sequence[tuple[float, float]],
    palette: Palette,
    width: int,
    height: int,
    chosen: KernelRow | None = None,
) -> list[Text]:
    """`height` lines of `width` cells, the lower two being the axis.

    Args:
        trail: Intensity and FLOP/s of all kernels together, oldest first; the last is now.
        chosen: The kernel under the cursor: it lies above all others, between brackets.
    """
    highest = max(roofs.flop_per_s.values(), default=1e15)
    frame = Frame(max(8, width - GUTTER), max(3, height - 2), math.log10(highest) + 0.3)
    canvas: Canvas = {}
    _roofs(canvas, frame, roofs, used(kernels, roofs), palette)
    for point in trail[:-1]:
        _dot(canvas, frame, point, "·", palette.style("text"))
    for kernel in plotted(kernels):
        _mark(canvas, frame, kernel, palette)
    if chosen is not None:
        _mark(canvas, frame, chosen, palette, "[]")
    for point in trail[-1:]:  # above all: where one kernel is most of the time, it is the whole
        _dot(canvas, frame, point, "◆", palette.style("text", bold=True))
    return [*_grid(canvas, frame, palette), *_axis(frame, palette)]


def used(kernels: Sequence[KernelRow], roofs: Roofs) -> list[str]:
    """The precisions whose roof is drawn: those in use, else the fastest; highest first."""
    seen = {k.precision for k in kernels if k.precision in roofs.flop_per_s}
    rates = roofs.flop_per_s
    if not seen and rates:
        seen = {max(rates, key=lambda name: rates[name])}
    return sorted((name for name in seen if name), key=lambda name: -rates[name])


def _roofs(canvas: Canvas, frame: Frame, roofs: Roofs, names: list[str], palette: Palette) -> None:
    compute, memory = palette.style("compute"), palette.style("memory")
    top = max((roofs.flop_per_s[name] for name in names), default=None)
    slope = roofs.bytes_per_s
    shared: dict[float, list[str]] = {}
    for name in names:
        shared.setdefault(roofs.flop_per_s[name], []).append(name)
    for rate in shared:
        first = max(0, frame.x(rate / slope)) if slope else 0
        for x in range(first, frame.width):
            canvas[x, frame.y(rate)] = ("─", compute)
    if slope is not None:
        _slope(canvas, frame, slope, top, memory, palette.ascii)
    for rate, alike in shared.items():
        label = f" {', '.join(sorted(alike))} {units.rate(rate, 'FLOP/s')} "
        above = max(0, frame.y(rate) - 1)  # no kernel is over its roof, and would hide it
        _write(canvas, max(0, frame.width - len(label) - 1), above, label, compute)


def _slope(
    canvas: Canvas, frame: Frame, slope: float, top: float | None, style: Style, ascii_only: bool
) -> None:
    """The roof of memory, up to the highest roof of arithmetic."""
    for (x, y), sign in (_strokes if ascii_only else _dots)(frame, slope, top).items():
        canvas[x, y] = (sign, style)
    label = f" memory {units.rate(slope, 'B/s')} "
    x = frame.width // 8
    y = frame.y(frame.intensity(x) * slope) + 1
    _write(canvas, x + 2, min(frame.height - 1, y), label, style)


def _strokes(frame: Frame, slope: float, top: float | None) -> dict[tuple[int, int], str]:
    cells = {}
    for x in range(frame.width):
        rate = frame.intensity(x) * slope
        if (top is None or rate <= top) and frame.holds(x, frame.y(rate)):
            cells[x, frame.y(rate)] = "╱"
    return cells


def _dots(frame: Frame, slope: float, top: float | None) -> dict[tuple[int, int], str]:
    """The same line on a grid of two by four dots a cell."""
    fine = Frame(2 * frame.width, 4 * frame.height, frame.y_high)
    bits: dict[tuple[int, int], int] = {}
    for x in range(fine.width):
        rate = fine.intensity(x) * slope
        y = fine.y(rate)
        if (top is None or rate <= top) and fine.holds(x, y):
            cell = x // 2, y // 4
            bits[cell] = bits.get(cell, 0) | DOTS[y % 4][x % 2]
    return {cell: chr(BRAILLE + mask) for cell, mask in bits.items()}


def _write(canvas: Canvas, x: int, y: int, label: str, style: Style) -> None:
    for offset, character in enumerate(label):
        canvas[x + offset, y] = (character, style)


def _mark(
    canvas: Canvas, frame: Frame, kernel: KernelRow, palette: Palette, around: str = ""
) -> None:
    """A kernel's letter, as large as its share; outside the plot it sits at the edge."""
    assert kernel.flop_per_s is not None
    side = kernel.side.value
    wide = kernel.share >= WIDE and frame.width > 2
    style = (
        palette.filled(side) if kernel.share >= FIELD or around else palette.style(side, bold=True)
    )
    x, y = _place(frame, (intensity(kernel) or 0.0, kernel.flop_per_s))
    x = min(max(x, 1), frame.width - 2) if wide or around else x
    if wide and not around:
        around = "  " if palette.colour else "()"
    for at, sign in zip((x - 1, x + 1), around, strict=False):
        canvas[at, y] = (sign, style)
    canvas[x, y] = (phrases.SIDE_LETTERS[kernel.side], style)


def _place(frame: Frame, point: tuple[float, float]) -> tuple[int, int]:
    x = min(max(frame.x(point[0]), 0), frame.width - 1)
    return x, min(max(frame.y(point[1]), 0), frame.height - 1)


def _dot(canvas: Canvas, frame: Frame, point: tuple[float, float], sign: str, style: Style) -> None:
    """A point; outside the plot it sits at the edge."""
    if point[0] <= 0 or point[1] <= 0:
        return
    canvas[_place(frame, point)] = (sign, style)


def _grid(canvas: Canvas, frame: Frame, palette: Palette) -> list[Text]:
    marks = {
        frame.y(10.0**power): units.rate(10.0**power, "FLOP/s").replace(".00", "").replace(".0", "")
        for power in range(int(frame.y_high - DECADES), int(frame.y_high) + 1)
    }
    lines = []
    for y in range(frame.height):
        line = Text(no_wrap=True)
        line.append(f"{marks.get(y, ''):>{GUTTER - 2}} ", palette.style("muted"))
        line.append("┤" if y in marks else "│", palette.style("rule"))
        cells = (canvas.get((x, y), (" ", Style.null())) for x in range(frame.width))
        lines.append(line.append_text(styled(cells)))
    return lines


def _axis(frame: Frame, palette: Palette) -> list[Text]:
    edge = Text(no_wrap=True).append(" " * (GUTTER - 1))
    labels = [" "] * (GUTTER + frame.width)
    stroke = ["─"] * frame.width
    for power in range(int(X_LOW), int(X_HIGH) + 1):
        x = frame.x(10.0**power)
        stroke[x] = "┬"
        number = f"{10.0**power:g}"
        at = min(GUTTER + x, len(labels) - len(number))
        labels[at : at + len(number)] = number
    edge.append("└" + "".join(stroke), palette.style("rule"))
    title = "FLOP/byte"
    labels[: len(title)] = title
    return [edge, palette.text("".join(labels), "muted")]
