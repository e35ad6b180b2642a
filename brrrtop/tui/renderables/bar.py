"""One horizontal bar of shares, each part told apart by colour, letter and fill."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from brrrtop.text import units
from brrrtop.tui.palette import Palette, letter

Part = tuple[str, float]
"""A bucket of `look.MARKS` and its share of the bar."""


def cells(shares: Sequence[float], width: int) -> list[int]:
    """Whole cells for each share: they add up to `width`, and what is there gets at least one.

    Shares are taken relative to their sum. With more parts than cells the largest win.
    """
    total = sum(shares)
    if width <= 0 or total <= 0:
        return [0] * len(shares)
    exact = [share / total * width for share in shares]
    counts = [max(1, int(value)) if value > 0 else 0 for value in exact]
    order = sorted(range(len(shares)), key=lambda i: exact[i] - counts[i])
    while sum(counts) > width:
        largest = max(range(len(counts)), key=lambda i: (counts[i] > 1, counts[i] - exact[i]))
        if counts[largest] <= 1:
            largest = min((i for i in range(len(counts)) if counts[i]), key=lambda i: exact[i])
        counts[largest] -= 1
    while sum(counts) < width:
        counts[order.pop()] += 1
    return counts


def bar(parts: Sequence[Part], palette: Palette, width: int, labels: Sequence[str] = ()) -> Text:
    """The parts side by side over `width` cells.

    Args:
        labels: One a part, written into it where it fits; else its letter and percentage, else
            its letter.
    """
    text = Text(no_wrap=True)
    counts = cells([share for _, share in parts], width)
    for i, ((bucket, share), count) in enumerate(zip(parts, counts, strict=True)):
        if not count:
            continue
        wordy = labels[i] if i < len(labels) else ""
        text.append(_segment(bucket, share, wordy, palette, count), palette.filled(bucket))
    if text.cell_len < width:
        text.append((". " if palette.ascii else "· ") * width, palette.style("rule"))
        text.truncate(width)
    return text


def _segment(bucket: str, share: float, wordy: str, palette: Palette, count: int) -> str:
    sign = letter(bucket)
    fill = " " if palette.colour else palette.fill(bucket)
    for label in (f" {wordy} " if wordy else "", f" {sign} {units.share(share)} ", f" {sign} "):
        if label and cell_len(label) <= count:
            return label + fill * (count - cell_len(label))
    return sign + fill * (count - 1)


def meter(share: float | None, palette: Palette, width: int, hue: str = "text") -> Text:
    """One value of 0..1 as a bar of fixed width; nothing measured is an empty, dashed one."""
    if width <= 0:
        return Text()
    if share is None:
        return palette.text(("-" if palette.ascii else "╌") * width, "rule")
    full = "#" if palette.ascii else "━"
    rest = "." if palette.ascii else ("─" if palette.colour else "╌")
    filled = min(width, max(1 if share > 0 else 0, round(share * width)))
    text = palette.text(full * filled, hue)
    return text.append(rest * (width - filled), palette.style("rule"))
