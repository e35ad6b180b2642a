"""The split over time as a stacked area, newest at the right; and sparklines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from rich.text import Text

from brrrtop.model.account import Split
from brrrtop.model.snapshot import HistoryPoint
from brrrtop.tui.palette import Palette

LAYERS = ("compute", "memory", "overhead", "unknown")
EIGHTHS = " ▁▂▃▄▅▆▇█"
ASCII_LEVELS = " .:-=+*#"


def shares(split: Split) -> tuple[float, float, float, float]:
    """In the order of `LAYERS`."""
    return (split.compute, split.memory, split.overhead, split.unknown)


def columns(history: Sequence[HistoryPoint], width: int) -> list[HistoryPoint]:
    """One point a column, columns being equal times: the newest `width` points over the width.

    A point stands for the time since the one before it; the first, whose beginning nobody noted,
    for as long as the shortest.
    """
    if not history or width <= 0:
        return []
    newest = history[-width:]
    ends = [point.t_ns for point in newest]
    begin = ends[0] - min((late - early for early, late in pairwise(ends)), default=1)
    length = ends[-1] - begin
    moments = (begin + length * (2 * x + 1) // (2 * width) for x in range(width))
    return [newest[min(bisect_left(ends, moment), len(ends) - 1)] for moment in moments]


def stacked_area(
    history: Sequence[HistoryPoint], palette: Palette, width: int, height: int
) -> list[Text]:
    """`height` lines: compute at the bottom, then memory, overhead, unknown."""
    points = columns(history, width)
    lines = []
    for row in range(height):
        line = Text(" " * (width - len(points)), no_wrap=True)
        low, high = (height - 1 - row) / height, (height - row) / height
        for point in points:
            _cell(line, shares(point.split), low, high, palette)
        lines.append(line)
    return lines


def _cell(line: Text, parts: Sequence[float], low: float, high: float, palette: Palette) -> None:
    """One cell of a column: the layers of the stack between `low` and `high`."""
    inside: list[tuple[float, str]] = []
    edge = 0.0
    for layer, part in zip(LAYERS, parts, strict=True):
        covered = min(edge + part, high) - max(edge, low)
        if covered > 0:
            inside.append((covered, layer))
        edge += part
    if not inside:
        line.append(" ")
        return
    if not palette.colour or len(inside) == 1:
        layer = max(inside)[1]
        line.append(palette.fill(layer) if not palette.colour else "█", palette.style(layer))
        return
    below, above = _two_largest(inside)
    eighths = round(8 * below[0] / (below[0] + above[0]))
    if palette.ascii or eighths in (0, 8):
        layer = max(below, above)[1]
        line.append(" ", palette.filled(layer)) if palette.ascii else line.append(
            "█", palette.style(layer)
        )
    else:
        line.append(EIGHTHS[eighths], palette.boundary(below[1], above[1]))


def _two_largest(inside: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """The two layers that cover most of a cell, in stacking order."""
    largest = sorted(inside, reverse=True)[:2]
    return [entry for entry in inside if entry in largest][:2]


def sparkline(values: Sequence[float], palette: Palette, width: int, hue: str = "text") -> Text:
    """The newest values of 0..1, one a cell, at the right edge."""
    newest = values[-width:] if width > 0 else ()
    levels = (ASCII_LEVELS if palette.ascii else EIGHTHS)[1:]
    top = len(levels) - 1
    glyphs = "".join(levels[min(top, max(0, round(value * top)))] for value in newest)
    return Text.styled(glyphs.rjust(max(0, width)), palette.style(hue))
