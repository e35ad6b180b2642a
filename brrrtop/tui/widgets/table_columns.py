"""The columns of the kernel table: what each shows, sorts by, and when there is room for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from rich.text import Text

from brrrtop.kernel_names import readable
from brrrtop.model.estimate import KernelRow
from brrrtop.text import phrases, units
from brrrtop.tui.palette import Palette
from brrrtop.tui.renderables.bar import meter
from brrrtop.tui.renderables.line import fitted


class Column(Struct, frozen=True):
    key: str
    title: str
    width: int
    """0: what is left."""
    from_width: int
    """Table width from which there is room for it."""
    value: Callable[[KernelRow], Any]
    """What it sorts by."""
    text: Callable[[Any], str] = str
    """Of the value."""
    words: bool = False
    """To the left, and from A to Z; figures are to the right, and the largest comes first."""


COLUMNS = (
    Column("side", "", 1, 0, lambda k: phrases.SIDE_LETTERS[k.side], words=True),
    Column("share", "share", 6, 0, lambda k: k.share, units.share),
    Column("bar", "", 10, 130, lambda k: k),
    Column("total", "total", 8, 0, lambda k: k.total_ns, units.duration),
    Column("mean", "mean", 8, 64, lambda k: k.mean_ns, units.duration),
    Column("count", "count", 7, 50, lambda k: k.count, units.count),
    Column("roof", "roof", 6, 56, lambda k: k.roof_share, units.share),
    Column("rate", "rate", 12, 150, lambda k: k, lambda k: rate(k)),
    Column("evidence", "evid", 5, 72, lambda k: k.evidence),
    Column("sure", "sure", 5, 100, lambda k: k.confidence, units.share),
    Column("family", "family", 12, 92, lambda k: k.family, words=True),
    Column("name", "kernel", 0, 0, lambda k: readable.short_name(k.name), words=True),
)
A_STEP = {"total": "a step", "count": "calls"}
"""Columns that are told of a step where steps are known: over a window they grow with every burst."""
SORTABLE = tuple(c.key for c in COLUMNS if c.key not in ("bar", "rate"))


def rate(kernel: KernelRow) -> str:
    """The rate that its side of the roof is about."""
    if kernel.side.value == "memory" or kernel.flop_per_s is None:
        return units.rate(kernel.bytes_per_s, "B/s")
    return units.rate(kernel.flop_per_s, "FLOP/s")


def column(key: str) -> Column:
    return next(c for c in COLUMNS if c.key == key)


def fitting(width: int) -> list[tuple[Column, int]]:
    """The columns there is room for, with their widths."""
    shown = [c for c in COLUMNS if width >= c.from_width]
    fixed = sum(c.width + 1 for c in shown)
    return [(c, c.width or max(0, width - fixed)) for c in shown]


def ordered(kernels: Sequence[KernelRow], key: str, reverse: bool) -> list[KernelRow]:
    """The kernels in a column's usual order, or the other way round; what was not measured last."""
    chosen = column(key)
    measured = [kernel for kernel in kernels if chosen.value(kernel) is not None]
    unmeasured = [kernel for kernel in kernels if chosen.value(kernel) is None]
    return sorted(measured, key=chosen.value, reverse=chosen.words == reverse) + unmeasured


def matching(kernels: Iterable[KernelRow], query: str) -> list[KernelRow]:
    """Kernels in whose name, family or side every word of the query occurs."""
    words = query.casefold().split()
    return [
        kernel
        for kernel in kernels
        if all(w in f"{kernel.name} {kernel.family} {kernel.side}".casefold() for w in words)
    ]


def of_a_step(kernel: KernelRow, key: str, steps: float) -> str:
    """A column of `A_STEP`."""
    if key == "total":
        return units.duration(round(kernel.total_ns / steps))
    calls = kernel.count / steps
    return f"{round(calls):,}" if calls >= 9.95 else f"{calls:.2g}"


def header_line(
    width: int, key: str, reverse: bool, palette: Palette, steps: float | None = None
) -> Text:
    """Column titles, an arrow at the one that sorts. `steps`: those of the window."""
    text = Text(no_wrap=True)
    for col, cells in fitting(width):
        title = A_STEP.get(col.key, col.title) if steps else col.title
        sorts = col.key == key
        if sorts and cells > 1:
            apart = " " if palette.ascii and len(title) + 2 <= cells else ""
            title += apart + ("▼" if col.words == reverse else "▲")
        style = palette.style("text", bold=True) if sorts else palette.style("muted")
        text.append(f"{fitted(title, cells) if col.words else title:>{cells}} ", style)
    return text


def kernel_line(
    kernel: KernelRow, width: int, palette: Palette, steps: float | None = None
) -> Text:
    """One kernel, its time and calls of one of the window's `steps`, else of the window."""
    text = Text(no_wrap=True)
    side = kernel.side.value
    for col, cells in fitting(width):
        if col.key == "side":
            text.append(phrases.SIDE_LETTERS[kernel.side], palette.filled(side))
        elif col.key == "bar":
            text.append_text(meter(kernel.share, palette, cells, side))
        elif col.key == "name":
            text.append(fitted(readable.fitted(kernel.name, cells), cells), palette.style(side))
        else:
            value = col.text(col.value(kernel))
            if steps and col.key in A_STEP:
                value = of_a_step(kernel, col.key, steps)
            bold = col.key == "share"
            style = palette.style("muted" if value == units.UNMEASURED else "text", bold=bold)
            text.append(fitted(value, cells) if col.words else f"{value:>{cells}}", style)
        text.append(" ")
    return text


def column_at(x: int, width: int) -> str | None:
    """The column under a cell of the header."""
    edge = 0
    for col, cells in fitting(width):
        edge += cells + 1
        if x < edge:
            return col.key if col.key in SORTABLE else None
    return None
