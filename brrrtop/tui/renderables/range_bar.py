"""A range on a common scale: where nothing is won, from where to where, and the likeliest value."""

from __future__ import annotations

from rich.text import Text

from brrrtop.tui.palette import Palette

ZERO, RANGE, MIDDLE, BOTH = "│", "━", "●", "┼"


def range_bar(
    low: float,
    middle: float,
    high: float,
    scale: tuple[float, float],
    hue: str,
    palette: Palette,
    cells: int,
) -> Text:
    """`cells` characters from the scale's least value to its largest."""
    least, most = scale
    per = (cells - 1) / ((most - least) or 1.0)

    def place(value: float) -> int:
        return min(cells - 1, max(0, round((value - least) * per)))

    signs = [" "] * cells
    signs[place(0.0)] = ZERO
    for at in range(place(low), place(high) + 1):
        signs[at] = RANGE if signs[at] == " " else BOTH
    signs[place(middle)] = MIDDLE
    bar = Text(no_wrap=True)
    for at, sign in enumerate(signs):
        style = palette.style("rule" if sign == ZERO else hue, bold=at == place(middle))
        bar.append(sign, style)
    return bar
