"""One horizontal bar of shares, each part named by the words in it."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from brrrtop.tui.palette import MARKS, Palette

Part = tuple[str, float]
"""A bucket of `palette.MARKS` and its share of the bar."""


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


def bar(
    parts: Sequence[Part], palette: Palette, width: int, labels: Sequence[Sequence[str]]
) -> Text:
    """The parts side by side over `width` cells.

    Args:
        labels: For each part, longest first: the first that fits is written into it.
    """
    text = Text(no_wrap=True)
    counts = cells([share for _, share in parts], width)
    shown = [one for one in zip(parts, counts, labels, strict=True) if one[1]]
    for place, ((bucket, _), count, words) in enumerate(shown):
        # Neighbours of one hue need an edge between them.
        edge = place + 1 < len(shown) and _hue(shown[place + 1][0][0]) == _hue(bucket) and count > 1
        text.append(_segment(bucket, words, palette, count - edge), palette.filled(bucket))
        text.append("▕" * edge, palette.filled(bucket))
    if text.cell_len < width:
        text.append((". " if palette.ascii else "· ") * width, palette.style("rule"))
        text.truncate(width)
    return text


def _hue(bucket: str) -> str:
    return MARKS[bucket].hue


def _segment(bucket: str, labels: Sequence[str], palette: Palette, count: int) -> str:
    fill = " " if palette.colour else palette.fill(bucket)
    label = next((f" {one}" for one in labels if cell_len(one) < count), "")
    label += " " * bool(label and cell_len(label) < count)
    if not label and labels and cell_len(labels[-1]) <= count:
        label = labels[-1]
    return label + fill * (count - cell_len(label))


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
