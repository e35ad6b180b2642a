"""Where the time went over time, by cause, as a stacked area: newest at the right; and sparklines."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, groupby, pairwise

from rich.style import Style
from rich.text import Text

from brrrtop.model.account import IDLE_CAUSES
from brrrtop.model.snapshot import HistoryPoint
from brrrtop.text import phrases
from brrrtop.tui.palette import Palette, waits
from brrrtop.tui.renderables.line import styled

LAYERS = (
    "compute", "memory", "underfilled", "exposed_comm", "exposed_copy",
    *(f"idle_{cause}" for cause in IDLE_CAUSES), "unknown",
)  # fmt: skip
"""From the bottom."""
EIGHTHS = " ▁▂▃▄▅▆▇█"
ASCII_LEVELS = " .:-=+*#"
LIVE_NS = 1_000_000_000
"""Time of a column of a source that goes on."""

Layers = Mapping[str, float]
_EMPTY = Style.null()


def layers(point: HistoryPoint) -> Layers:
    account = point.account
    return {key: ns / account.duration_ns for key, ns in phrases.buckets(account) if ns}


def column_ns(whole_ns: int | None, width: int) -> int:
    """Time of one column: a second where a source goes on; else so that all of it fills the width."""
    return LIVE_NS if whole_ns is None else max(1, -(-whole_ns // max(1, width)))


def columns(
    history: Sequence[HistoryPoint], edges_ns: Sequence[int], end_ns: int
) -> list[HistoryPoint | None]:
    """One point for each column between two edges; None before the first and after `end_ns`.

    A point stands for the time since the one before it, the first for as long as the next one. The
    last one stands until there is a newer one.
    """
    if not history:
        return [None] * max(0, len(edges_ns) - 1)
    ends = [point.t_ns for point in history]
    first_ns = ends[0] - (ends[1] - ends[0] if len(ends) > 1 else edges_ns[1] - edges_ns[0])
    shown: list[HistoryPoint | None] = []
    for left, right in pairwise(edges_ns):
        middle = (left + right) // 2
        if right <= first_ns or left >= end_ns:
            shown.append(None)
        else:
            shown.append(history[min(bisect_left(ends, middle), len(ends) - 1)])
    return shown


def stacked_area(
    shares: Sequence[Layers | None], palette: Palette, height: int, order: Sequence[str] = LAYERS
) -> list[Text]:
    """`height` lines of a cell a column; what is None stays empty."""
    columns = (list(same) for _, same in groupby(shares, key=id))  # of one point: drawn once
    runs = []
    for same in columns:
        parts = same[0] or {}
        inside = tuple((layer, parts[layer]) for layer in order if parts.get(layer))
        runs.append((_column(inside, palette, height), len(same)))
    return [
        styled((cells[row][0] * count, cells[row][1]) for cells, count in runs)
        for row in range(height)
    ]


@lru_cache(maxsize=512)
def _column(
    parts: tuple[tuple[str, float], ...], palette: Palette, height: int
) -> list[tuple[str, Style]]:
    """Its cells, from the top. Kept: a second later all of them stand one place to the left."""
    edges = accumulate((part for _, part in parts), initial=0.0)
    stack = [(a, b, layer) for (a, b), (layer, _) in zip(pairwise(edges), parts, strict=True)]
    ends = [(height - row) / height for row in range(height + 1)]
    return [_cell(stack, low, high, palette) for high, low in pairwise(ends)]


def _cell(
    stack: Sequence[tuple[float, float, str]], low: float, high: float, palette: Palette
) -> tuple[str, Style]:
    """One cell of a column: the layers of the stack between `low` and `high`."""
    inside: list[tuple[float, str]] = []
    for begin, end, layer in stack:
        covered = min(end, high) - max(begin, low)
        if covered > 1e-9:
            inside.append((covered, layer))
    if not inside:
        return " ", _EMPTY
    if not palette.colour or len(inside) == 1:
        layer = max(inside)[1]
        return palette.texture(layer), palette.style(layer)
    return _boundary(inside, palette)


def _boundary(inside: list[tuple[float, str]], palette: Palette) -> tuple[str, Style]:
    """A cell of several layers shows the two that cover most of it, in stacking order."""
    largest = sorted(inside, reverse=True)[:2]
    below, above = [entry for entry in inside if entry in largest][:2]
    eighths = round(8 * below[0] / (below[0] + above[0]))
    layer = max(below, above)[1]
    if palette.ascii or eighths in (0, 8) or waits(below[1]):
        return palette.texture(layer), palette.style(layer)
    if waits(above[1]):
        return EIGHTHS[eighths], palette.style(below[1])
    return EIGHTHS[eighths], palette.boundary(below[1], above[1])


def sparkline(values: Sequence[float], palette: Palette, width: int, hue: str = "text") -> Text:
    """The newest values of 0..1, one a cell, at the right edge."""
    newest = values[-width:] if width > 0 else ()
    glyphs = "".join(level(value, palette) for value in newest)
    return palette.text(glyphs.rjust(max(0, width)), hue)


def level(value: float, palette: Palette) -> str:
    """0..1 as the height of one cell; what is there is seen."""
    levels = (ASCII_LEVELS if palette.ascii else EIGHTHS)[1:]
    top = len(levels) - 1
    return levels[min(top, max(0, round(value * top)))]
